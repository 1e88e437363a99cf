// SPDX-License-Identifier: Apache-2.0
// What something waits for, for whoever asks why nothing goes on.
#ifndef BASE_WAIT_H_
#define BASE_WAIT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

struct Wait {
  // With the numbers of pb::Wait::Kind (proto/waits.proto).
  enum class Kind : uint8_t {
    kOther,
    kReceive,
    kQueue,
    kAccumulator,
    kCollective,
    kKernel,  // waits for nobody: it runs
    kLoop,    // the same
    kLock,    // a turn that somebody else has
    kTask,    // a sign of life
  };
  Kind kind = Kind::kOther;
  // Who waits, as far as it is known.
  std::string node{}, op{}, device{}, origin{};
  std::string name{};       // what for: the name of a queue, the key of a value
  std::string peer{};       // whose turn it is: a task; "" where nobody can say
  std::string text{};       // the sentence for people, without what stands above
  int64_t since_nanos = 0;  // by SteadyNanos(); 0: not known
};

// Descriptions of a cancellation manager (base/cancellation.h) are texts. One that is made by
// EncodeWait brings the other fields along; any other text is a Wait of which only that is known.
std::string EncodeWait(const Wait& wait);
Wait DecodeWait(std::string_view description);

// What can say for what it waits, beside that which it is for. Thread-safe.
class WaitLister {
 public:
  virtual void ListWaits(std::vector<Wait>* waits) const = 0;

 protected:
  ~WaitLister() = default;
};

}  // namespace millrace

#endif  // BASE_WAIT_H_
