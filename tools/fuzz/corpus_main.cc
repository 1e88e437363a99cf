// SPDX-License-Identifier: Apache-2.0
// Runs a fuzzer without libFuzzer: over its seeds, and over as many changes to each as the one
// argument says, the same in every run. What a seed is, the fuzzer says by defining
// millrace::FuzzSeeds. Ends with 1 if there are none; an input that breaks the fuzzer is printed in
// hexadecimal.
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size);

namespace millrace {
std::vector<std::string> FuzzSeeds();

namespace {

constexpr unsigned kPerInputSeconds = 20;

std::string current;  // what the fuzzer is looking at

// Only async-signal-safe calls.
void OnCrash(int number) {
  constexpr char kHex[] = "0123456789abcdef";
  constexpr std::string_view kHead = "\nthe fuzzer broke on: ";
  [[maybe_unused]] ssize_t n = write(2, kHead.data(), kHead.size());
  for (const char c : current) {
    const char pair[] = {kHex[static_cast<uint8_t>(c) >> 4], kHex[c & 15]};
    n = write(2, pair, 2);
  }
  n = write(2, "\n", 1);
  signal(number, SIG_DFL);
  raise(number);
}

void Run(std::string input) {
  current = std::move(input);
  alarm(kPerInputSeconds);
  // A copy of its own size, so that a sanitizer sees every byte behind the end.
  const std::vector<uint8_t> bytes(current.begin(), current.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  alarm(0);
}

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  std::string Change(std::string text, const std::vector<std::string>& seeds) {
    for (uint64_t times = 1 + Below(4); times > 0; --times) ChangeOnce(&text, seeds);
    return text;
  }

 private:
  uint64_t Below(uint64_t n) { return random_() % n; }
  std::size_t Place(const std::string& text) { return Below(text.size() + 1); }

  void ChangeOnce(std::string* text, const std::vector<std::string>& seeds) {
    static constexpr uint8_t kTelling[] = {0x00, 0x01, 0x7f, 0x80, 0xff, 0x0a, 0x2f, 0x3a};
    const std::size_t at = Place(*text);
    switch (Below(6)) {
      case 0:  // a bit
        if (at < text->size()) (*text)[at] = static_cast<char>((*text)[at] ^ (1 << Below(8)));
        break;
      case 1:  // a byte
        if (at < text->size()) (*text)[at] = static_cast<char>(kTelling[Below(sizeof(kTelling))]);
        break;
      case 2:  // more
        text->insert(at, 1 + Below(9), static_cast<char>(kTelling[Below(sizeof(kTelling))]));
        break;
      case 3:  // less
        text->erase(at, 1 + Below(9));
        break;
      case 4:  // the end is missing
        text->resize(at);
        break;
      default: {  // a piece of another seed
        const std::string& other = seeds[Below(seeds.size())];
        const std::size_t from = Place(other);
        text->insert(at, other, from, 1 + Below(64));
      }
    }
  }

  std::mt19937_64 random_;
};

int Main(int changes) {
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM}) {
    signal(number, OnCrash);
  }
  const std::vector<std::string> seeds = FuzzSeeds();
  if (seeds.empty()) {
    std::fprintf(stderr, "the fuzzer has no seeds\n");
    return 1;
  }
  Run("");
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    Run(seeds[i]);
    Mutator mutator(i + 1);
    for (int k = 0; k < changes; ++k) Run(mutator.Change(seeds[i], seeds));
  }
  std::printf("%zu seeds, %zu inputs\n", seeds.size(),
              seeds.size() * (static_cast<std::size_t>(changes) + 1) + 1);
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  const int changes = argc == 2 ? std::atoi(argv[1]) : 0;
  if (changes < 1) {
    std::fprintf(stderr, "usage: %s CHANGES_PER_SEED\n", argv[0]);
    return 2;
  }
  return millrace::Main(changes);
}
