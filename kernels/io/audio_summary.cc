// SPDX-License-Identifier: Apache-2.0
// Sound in summaries, as WAV files of 16-bit samples.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/message_text.h"
#include "kernels/host_kernels.h"
#include "kernels/kernel_context.h"
#include "proto/summary.pb.h"

namespace millrace {
namespace {

void Append(std::string* out, uint64_t number, int bytes) {
  for (int i = 0; i < bytes; ++i) out->push_back(static_cast<char>(number >> (8 * i) & 0xff));
}

// RIFF/WAVE, uncompressed, little-endian.
StatusOr<std::string> EncodeWav(const float* samples, uint64_t rate, int64_t channels,
                                int64_t frames) {
  constexpr int64_t kHeader = 44, kSampleBytes = 2;
  if (channels <= 0 || channels > std::numeric_limits<uint16_t>::max()) {
    return errors::InvalidArgument("num_channels must be in (0, 2^16), got: ", channels);
  }
  if (rate > std::numeric_limits<uint32_t>::max()) {
    return errors::InvalidArgument("sample_rate must be in (0, 2^32), got: ", rate);
  }
  int64_t bytes;
  if (__builtin_mul_overflow(frames * channels, kSampleBytes, &bytes) ||
      bytes > std::numeric_limits<uint32_t>::max() - kHeader) {
    return errors::InvalidArgument("Provided channels and frames cannot be encoded as a WAV.");
  }
  std::string wav = "RIFF";
  wav.reserve(static_cast<std::size_t>(kHeader + bytes));
  Append(&wav, static_cast<uint64_t>(kHeader + bytes - 8), 4);
  wav += "WAVEfmt ";
  Append(&wav, 16, 4);  // the size of this part
  Append(&wav, 1, 2);   // as it is
  Append(&wav, static_cast<uint64_t>(channels), 2);
  Append(&wav, rate, 4);
  Append(&wav, rate * kSampleBytes * static_cast<uint64_t>(channels), 4);
  Append(&wav, static_cast<uint64_t>(kSampleBytes * channels), 2);
  Append(&wav, 8 * kSampleBytes, 2);
  wav += "data";
  Append(&wav, static_cast<uint64_t>(bytes), 4);
  for (int64_t i = 0; i < frames * channels; ++i) {
    const float sample = std::isnan(samples[i]) ? 0.0f : samples[i];
    const float rounded = std::clamp(std::round(sample * 32768.0f), -32768.0f, 32767.0f);
    Append(&wav, static_cast<uint16_t>(static_cast<int16_t>(rounded)), 2);
  }
  return wav;
}

class AudioSummaryKernel : public Kernel {
 public:
  explicit AudioSummaryKernel(KernelConstruction& c)
      : Kernel(c),
        most_(c.attr<int64_t>("max_outputs")),
        rate_(c.attrs().GetOr<float>("sample_rate", 0)) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor &tag = ctx.input(0), sound = ctx.locked_input(1);
    if (tag.rank() != 0) return errors::InvalidArgument("Tag must be a scalar");
    if (sound.rank() < 2 || sound.rank() > 3) {
      return errors::InvalidArgument("Tensor must be 3-D or 2-D, got: ",
                                     sound.shape().DebugString());
    }
    float rate = rate_;
    if (ctx.num_inputs() == 3) {
      if (ctx.input(2).num_elements() != 1) {
        return errors::InvalidArgument("sample_rate must be rank-0 or contain a single value");
      }
      rate = ctx.input(2).data<float>()[0];
    }
    if (!(rate > 0)) return errors::InvalidArgument("sample_rate must be > 0");
    const int64_t frames = sound.dim(1), channels = sound.rank() == 2 ? 1 : sound.dim(2);
    const int64_t count = std::min(most_, sound.dim(0));
    // What a file's header can say.
    const double most_rate = std::numeric_limits<uint32_t>::max();
    const auto whole =
        static_cast<uint64_t>(std::clamp(std::rint(static_cast<double>(rate)), 1.0, most_rate + 1));
    pb::Summary summary;
    for (int64_t i = 0; i < count; ++i) {
      pb::Summary::Value* const value = summary.add_value();
      value->set_tag(StrCat(tag.scalar<std::string>(), "/audio", most_ > 1 ? StrCat("/", i) : ""));
      pb::Summary::Audio* const audio = value->mutable_audio();
      audio->set_sample_rate(rate);
      audio->set_num_channels(channels);
      audio->set_length_frames(frames);
      audio->set_content_type("audio/wav");
      const float* const from =
          sound.num_elements() == 0 ? nullptr : sound.data<float>() + i * frames * channels;
      MR_ASSIGN_OR_RETURN(*audio->mutable_encoded_audio_string(),
                          EncodeWav(from, whole, channels, from == nullptr ? 0 : frames));
    }
    MR_ASSIGN_OR_RETURN(std::string text, MessageText(summary));
    ctx.SetOutput(0, Tensor::String(std::move(text)));
    return OkStatus();
  }

 private:
  const int64_t most_;
  const float rate_;
};

}  // namespace

void RegisterAudioSummaryKernels(KernelRegistry& r) {
  RegisterCpu<AudioSummaryKernel>(r, "AudioSummary");
  RegisterCpu<AudioSummaryKernel>(r, "AudioSummaryV2");
}

}  // namespace millrace
