// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/strings.h"
#include "millrace/core_layers.h"
#include "model/layers/layer_util.h"

namespace millrace::layers {
namespace {

using Row = std::vector<std::string>;

// Columns of a text in UTF-8.
std::size_t Columns(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string Repeat(std::string_view piece, std::size_t times) {
  std::string text;
  for (std::size_t i = 0; i < times; ++i) text += piece;
  return text;
}

std::string WithCommas(int64_t number) {
  std::string digits = StrCat(number);
  for (std::size_t i = digits.size(); i > 3;) {
    i -= 3;
    digits.insert(i, ",");
  }
  return digits;
}

std::string Bytes(double bytes) {
  const char* const units[] = {"B", "KB", "MB", "GB", "TB", "PB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 5) {
    bytes /= 1024;
    ++unit;
  }
  char text[40];
  std::snprintf(text, sizeof(text), "%.2f %s", bytes, units[unit]);
  return text;
}

std::string ShapeText(const Layer& layer) {
  const PartialShape& shape = layer.output_shape();
  if (!layer.is_called() || !shape.has_rank()) return "?";
  std::vector<std::string> dims;
  for (const int64_t dim : shape.dims()) dims.push_back(dim < 0 ? "None" : StrCat(dim));
  return StrCat("(", StrJoin(dims, ", "), dims.size() == 1 ? ",)" : ")");
}

// A row of cells in columns of these widths; text that is too long goes on in further lines.
std::string Lines(const Row& cells, const std::vector<std::size_t>& widths, const char* bar) {
  std::vector<std::vector<std::string>> parts;
  std::size_t height = 1;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    std::vector<std::string> lines = {""};
    for (const std::string_view word : StrSplit(cells[i], ' ')) {
      std::string& last = lines.back();
      if (!last.empty() && Columns(last) + 1 + Columns(word) > widths[i]) {
        lines.emplace_back(word);
      } else {
        last += (last.empty() && word.data() == cells[i].data() ? "" : " ");
        last += word;
      }
    }
    height = std::max(height, lines.size());
    parts.push_back(lines);
  }
  std::string text;
  for (std::size_t line = 0; line < height; ++line) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string cell = line < parts[i].size() ? parts[i][line] : "";
      const std::size_t space = widths[i] - std::min(widths[i], Columns(cell));
      const std::size_t left = i == 2 ? space : i == 3 ? space / 2 : 0;
      StrAppend(&text, bar, " ", std::string(left, ' '), cell, std::string(space - left, ' '), " ");
    }
    StrAppend(&text, bar, "\n");
  }
  return text;
}

std::string Rule(const std::vector<std::size_t>& widths, const char* left, const char* dash,
                 const char* middle, const char* right) {
  std::string text = left;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    StrAppend(&text, i > 0 ? middle : "", Repeat(dash, widths[i] + 2));
  }
  return StrCat(text, right, "\n");
}

void AddRows(const Layer& layer, int depth, const SummaryOptions& options, std::vector<Row>* rows) {
  const std::string name = layer.name().empty() ? SnakeCase(layer.kind()) : layer.name();
  const std::string indent = depth == 0 ? "" : std::string(3 * depth, ' ') + "└ ";
  Row row = {StrCat(indent, name, " (", layer.kind(), ")"), ShapeText(layer),
             StrCat(WithCommas(layer.CountParams()), layer.is_called() ? "" : " (unbuilt)")};
  if (options.show_trainable) {
    row.emplace_back(layer.weights().empty() ? "-" : layer.trainable() ? "Y" : "N");
  }
  rows->push_back(row);
  if (!options.expand_nested) return;
  for (const Layer* inner : layer.layers()) AddRows(*inner, depth + 1, options, rows);
}

std::string Total(const char* what, const std::vector<Variable>& variables) {
  int64_t count = 0;
  double bytes = 0;
  for (const Variable& v : variables) {
    const int64_t n = v.shape().AsShape().value_or(Shape()).num_elements();
    count += n;
    bytes += static_cast<double>(n) * static_cast<double>(DataTypeSize(BaseType(v.dtype())));
  }
  return StrCat(" ", what, ": ", WithCommas(count), " (", Bytes(bytes), ")\n");
}

}  // namespace

std::string Summary(const Layer& model, const SummaryOptions& options) {
  std::vector<Row> rows;
  const std::vector<Layer*> layers = model.layers();
  for (const Layer* layer : layers) AddRows(*layer, 0, options, &rows);
  if (layers.empty()) AddRows(model, 0, options, &rows);

  Row header = {"Layer (type)", "Output Shape", "Param #"};
  std::vector<double> ends = {0.45, 0.8, 1};
  if (options.show_trainable) {
    header.emplace_back("Trainable");
    ends = {0.405, 0.72, 0.9, 1};
  }
  const int width = std::max(60, options.width);
  std::vector<std::size_t> widths;
  // What bars and spaces take is shared out among the columns.
  int begin = 0, taken = static_cast<int>(3 * header.size() + 1);
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const int stop = static_cast<int>(ends[i] * width);
    const int less = static_cast<int>(std::nearbyint(taken / static_cast<double>(ends.size() - i)));
    widths.push_back(static_cast<std::size_t>(stop - begin - less));
    taken -= less;
    begin = stop;
  }
  const std::string name = model.name().empty() ? SnakeCase(model.kind()) : model.name();
  std::string text = StrCat("Model: \"", name, "\"\n", Rule(widths, "┏", "━", "┳", "┓"),
                            Lines(header, widths, "┃"), Rule(widths, "┡", "━", "╇", "┩"));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i > 0) text += Rule(widths, "├", "─", "┼", "┤");
    text += Lines(rows[i], widths, "│");
  }
  text += Rule(widths, "└", "─", "┴", "┘");
  return text + Total("Total params", model.weights()) +
         Total("Trainable params", model.trainable_weights()) +
         Total("Non-trainable params", model.non_trainable_weights());
}

}  // namespace millrace::layers
