// SPDX-License-Identifier: Apache-2.0
// Drawing classes at random: by their logits, and as candidates of sampled losses.
#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <unordered_set>
#include <vector>

#include "base/errors.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/shared_philox.h"
#include "kernels/host_kernels.h"
#include "kernels/kernel_context.h"
#include "kernels/random/random_plan.h"

namespace millrace {
namespace {

// One word, or one number in [0, 1), after the other.
class Stream {
 public:
  explicit Stream(const Philox& generator) : generator_(generator) {}
  uint32_t Word() {
    if (used_ == 4) {
      words_ = generator_();
      used_ = 0;
    }
    return words_[used_++];
  }
  double Double() {
    const uint64_t high = Word() & 0xfffffu, low = Word();
    return std::bit_cast<double>((uint64_t{1023} << 52) | high << 32 | low) - 1.0;
  }

 private:
  Philox generator_;
  Philox::Result words_{};
  int used_ = 4;
};

// Multinomial, and StatelessMultinomial, whose generator begins where its third input says.
class MultinomialKernel : public Kernel {
 public:
  explicit MultinomialKernel(KernelConstruction& c)
      : Kernel(c), generator_(c), has_seed_(c.def().name() == "StatelessMultinomial") {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& logits = ctx.input(0);
    if (logits.rank() != 2) {
      return errors::InvalidArgument("logits should be a matrix, got shape ",
                                     logits.shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(const int64_t samples, IntScalar(ctx.input(1), "num_samples"));
    if (samples < 0) {
      return errors::InvalidArgument("num_samples should be nonnegative, got ", samples);
    }
    const int64_t rows = logits.dim(0), classes = logits.dim(1);
    if (classes <= 0) return errors::InvalidArgument("num_classes should be positive, got 0");
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape(Dims{rows, samples}));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (out->num_elements() == 0) return OkStatus();    // the axes may be of any size
    const int64_t rounded = (samples + 3) / 4 * 4 * 2;  // two words make a number
    Philox generator;
    if (has_seed_) {
      MR_ASSIGN_OR_RETURN(const KeyCounter at, KeyFromSeed(ctx.input(2)));
      generator = PhiloxAt(at.key, 0, at.counter_high);
    } else {
      generator = generator_.Reserve(rows * rounded * 256);
    }
    Stream random(generator);
    std::vector<double> below(classes);
    for (int64_t r = 0; r < rows; ++r) {
      DispatchType(RealTypes(), logits.dtype(),
                   [&]<typename T>() { Accumulate(logits.data<T>() + r * classes, &below); });
      for (int64_t k = 0; k < samples; ++k) {
        const double at = random.Double() * below.back();
        const int64_t found = std::min<int64_t>(
            std::upper_bound(below.begin(), below.end(), at) - below.begin(), classes - 1);
        if (out->dtype() == kInt32) {
          out->data<int32_t>()[r * samples + k] = static_cast<int32_t>(found);
        } else {
          out->data<int64_t>()[r * samples + k] = found;
        }
      }
    }
    return OkStatus();
  }

 private:
  template <typename T>
  static void Accumulate(const T* logits, std::vector<double>* below) {
    const auto value = [&](std::size_t i) {
      return static_cast<double>(static_cast<ComputeType<T>>(logits[i]));
    };
    double most = -DBL_MAX, sum = 0;
    for (std::size_t i = 0; i < below->size(); ++i) {
      if (std::isfinite(value(i))) most = std::max(most, value(i));
    }
    for (std::size_t i = 0; i < below->size(); ++i) {
      if (std::isfinite(value(i))) sum += std::exp(value(i) - most);
      (*below)[i] = sum;
    }
  }

  SharedPhilox generator_;
  const bool has_seed_;
};

// UniformCandidateSampler and LogUniformCandidateSampler.
class CandidateSamplerKernel : public Kernel {
 public:
  explicit CandidateSamplerKernel(KernelConstruction& c)
      : Kernel(c),
        log_(c.def().name() == "LogUniformCandidateSampler"),
        num_true_(c.attr<int64_t>("num_true")),
        num_sampled_(c.attr<int64_t>("num_sampled")),
        range_(c.attr<int64_t>("range_max")),
        unique_(c.attr<bool>("unique")),
        log_range_(std::log1p(static_cast<double>(range_))),
        generator_(c) {
    if (num_sampled_ < 1 || range_ < 1 || num_true_ < 1) {
      c.SetError(
          errors::InvalidArgument("num_true, num_sampled and range_max must be at least 1, got ",
                                  num_true_, ", ", num_sampled_, " and ", range_));
    }
    if (unique_ && num_sampled_ > range_) {
      c.SetError(errors::InvalidArgument("Sampler's range is too small."));
    }
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& truth = ctx.input(0);
    if (truth.rank() != 2 || truth.dim(1) != num_true_) {
      return errors::InvalidArgument("true_classes must be a matrix with num_true columns, got ",
                                     truth.shape().DebugString());
    }
    for (const int64_t id : truth.flat<int64_t>()) {
      if (id < 0 || id >= range_) {
        return errors::InvalidArgument("`true_candidate` out of range [0, ", range_, "), received ",
                                       id);
      }
    }
    MR_ASSIGN_OR_RETURN(Tensor * sampled, ctx.AllocateOutput(0, Shape({num_sampled_})));
    MR_ASSIGN_OR_RETURN(Tensor * of_truth, ctx.AllocateOutput(1, truth.shape()));
    MR_ASSIGN_OR_RETURN(Tensor * of_sampled, ctx.AllocateOutput(2, Shape({num_sampled_})));
    // As many words as TensorFlow keeps for a call.
    Stream random(generator_.Reserve(2048 * num_sampled_));
    std::unordered_set<int64_t> drawn;
    int64_t tries = 0;
    for (int64_t i = 0; i < num_sampled_;) {
      const int64_t id = Draw(&random);
      ++tries;
      if (unique_ && !drawn.insert(id).second) continue;
      sampled->data<int64_t>()[i++] = id;
    }
    for (int64_t i = 0; i < truth.num_elements(); ++i) {
      of_truth->data<float>()[i] = Expected(truth.data<int64_t>()[i], tries);
    }
    for (int64_t i = 0; i < num_sampled_; ++i) {
      of_sampled->data<float>()[i] = Expected(sampled->data<int64_t>()[i], tries);
    }
    return OkStatus();
  }

 private:
  int64_t Draw(Stream* random) const {
    if (!log_) {
      const double at = random->Double() * static_cast<double>(range_);
      return std::min(static_cast<int64_t>(at), range_ - 1);
    }
    return (static_cast<int64_t>(std::exp(random->Double() * log_range_)) - 1) % range_;
  }
  float Probability(int64_t id) const {
    if (!log_) return 1.0f / static_cast<float>(range_);
    return static_cast<float>(
        std::log((static_cast<double>(id) + 2.0) / (static_cast<double>(id) + 1.0)) / log_range_);
  }
  // How often the class is expected among the candidates.
  float Expected(int64_t id, int64_t tries) const {
    const float p = Probability(id);
    if (!unique_) return p * static_cast<float>(num_sampled_);
    return static_cast<float>(-std::expm1(static_cast<double>(tries) * std::log1p(-p)));
  }

  const bool log_;
  const int64_t num_true_, num_sampled_, range_;
  const bool unique_;
  const double log_range_;
  SharedPhilox generator_;
};

class AccidentalHitsKernel : public Kernel {
 public:
  explicit AccidentalHitsKernel(KernelConstruction& c)
      : Kernel(c), num_true_(c.attr<int64_t>("num_true")) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor &truth = ctx.input(0), &sampled = ctx.input(1);
    if (truth.rank() != 2 || truth.dim(1) != num_true_ || sampled.rank() != 1) {
      return errors::InvalidArgument("true_classes must be a matrix with num_true columns and ",
                                     "sampled_candidates a vector, got ",
                                     truth.shape().DebugString(), " and ",
                                     sampled.shape().DebugString());
    }
    std::vector<int32_t> rows;
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < truth.num_elements(); ++i) {
      for (int64_t k = 0; k < sampled.num_elements(); ++k) {
        if (truth.data<int64_t>()[i] != sampled.data<int64_t>()[k]) continue;
        rows.push_back(static_cast<int32_t>(i / num_true_));
        ids.push_back(k);
      }
    }
    const Shape shape({static_cast<int64_t>(ids.size())});
    ctx.SetOutput(0, Tensor::FromValues<int32_t>(rows, shape));
    ctx.SetOutput(1, Tensor::FromValues<int64_t>(ids, shape));
    ctx.SetOutput(2, Tensor::FromValues<float>(std::vector<float>(ids.size(), -FLT_MAX), shape));
    return OkStatus();
  }

 private:
  const int64_t num_true_;
};

}  // namespace

void RegisterSamplingKernels(KernelRegistry& r) {
  for (const char* op : {"Multinomial", "StatelessMultinomial"}) {
    r.Register(KernelDef(op).Types("T", DataTypesOf(RealTypes())), MakeKernel<MultinomialKernel>);
  }
  RegisterCpu<CandidateSamplerKernel>(r, "UniformCandidateSampler");
  RegisterCpu<CandidateSamplerKernel>(r, "LogUniformCandidateSampler");
  RegisterCpu<AccidentalHitsKernel>(r, "ComputeAccidentalHits");
}

}  // namespace millrace
