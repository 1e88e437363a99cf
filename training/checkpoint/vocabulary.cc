// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/vocabulary.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/errors.h"
#include "base/status_macros.h"
#include "io/filesystem.h"

namespace millrace {
namespace {

// The first `size` lines of a file, all if that is -1; without their ends, whichever those are.
// They lie in `text`.
StatusOr<std::vector<std::string_view>> Words(const std::string& text, const std::string& file,
                                              int64_t size) {
  std::vector<std::string_view> words;
  std::string_view rest(text);
  while (!rest.empty() && static_cast<int64_t>(words.size()) != size) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view word = rest.substr(0, end);
    if (word.ends_with('\r')) word.remove_suffix(1);
    words.push_back(word);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (size < 0 || static_cast<int64_t>(words.size()) == size) return words;
  return errors::InvalidArgument("the vocabulary ", file, " is to have ", size,
                                 " words or more, one a line, and has ", words.size());
}

Status Check(const VocabInfo& v) {
  if (v.new_vocab_size < 1) {
    return errors::InvalidArgument("new_vocab_size of the vocabulary ", v.new_vocab,
                                   " must be positive, not ", v.new_vocab_size);
  }
  if (v.num_oov_buckets < 0) {
    return errors::InvalidArgument("num_oov_buckets of the vocabulary ", v.new_vocab,
                                   " must be 0 or more, not ", v.num_oov_buckets);
  }
  if (v.old_vocab_size != -1 && v.old_vocab_size < 1) {
    return errors::InvalidArgument("old_vocab_size of the vocabulary ", v.old_vocab,
                                   " must be positive, or -1 for all of it, not ",
                                   v.old_vocab_size);
  }
  if (v.axis == 0 || v.axis == 1) return OkStatus();
  return errors::InvalidArgument(
      "The only supported values for the axis argument are 0 and 1.  Provided axis: ", v.axis);
}

}  // namespace

StatusOr<std::vector<int64_t>> OldRows(const VocabInfo& vocabulary) {
  MR_RETURN_IF_ERROR(Check(vocabulary));
  MR_ASSIGN_OR_RETURN(const std::string old_text,
                      PosixFileSystem()->ReadFile(vocabulary.old_vocab));
  MR_ASSIGN_OR_RETURN(const std::string new_text,
                      PosixFileSystem()->ReadFile(vocabulary.new_vocab));
  MR_ASSIGN_OR_RETURN(const std::vector<std::string_view> old_words,
                      Words(old_text, vocabulary.old_vocab, vocabulary.old_vocab_size));
  MR_ASSIGN_OR_RETURN(const std::vector<std::string_view> new_words,
                      Words(new_text, vocabulary.new_vocab, vocabulary.new_vocab_size));
  std::unordered_map<std::string_view, int64_t> row_of;
  for (std::size_t i = 0; i < old_words.size(); ++i) {
    const auto [at, is_first] = row_of.emplace(old_words[i], static_cast<int64_t>(i));
    if (is_first) continue;
    return errors::InvalidArgument("the vocabulary ", vocabulary.old_vocab, " has '", old_words[i],
                                   "' in line ", at->second + 1, " and in line ", i + 1,
                                   ": which row is its?");
  }
  std::vector<int64_t> rows;
  for (const std::string_view word : new_words) {
    const auto found = row_of.find(word);
    rows.push_back(found == row_of.end() ? -1 : found->second);
  }
  rows.insert(rows.end(), static_cast<std::size_t>(vocabulary.num_oov_buckets), -1);
  return rows;
}

}  // namespace millrace
