// SPDX-License-Identifier: Apache-2.0
// Elements that a function of the program makes, one after the other, on a thread of its own: a
// step that is cancelled does not wait for the function to return.
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/exceptions.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "io/local_generators.h"
#include "kernels/common/kernel_util.h"
#include "kernels/data/data_kernels.h"
#include "kernels/data/dataset.h"
#include "kernels/data/waiting.h"

namespace millrace {
namespace {

using GeneratorPtr = std::shared_ptr<const LocalGenerator>;

struct ElementTypes {
  std::vector<DataType> types;
  std::vector<PartialShape> shapes;
};

Status CheckElement(const DatasetElement& element, const ElementTypes& declared) {
  if (element.size() != declared.types.size()) {
    return errors::InvalidArgument("it gave ", element.size(), " components, not ",
                                   declared.types.size());
  }
  for (std::size_t i = 0; i < element.size(); ++i) {
    if (!element[i].IsInitialized()) {
      return errors::InvalidArgument("component ", i, " is an empty Tensor object");
    }
    if (element[i].dtype() != declared.types[i] ||
        !declared.shapes[i].IsCompatibleWith(element[i].shape())) {
      return errors::InvalidArgument(
          "component ", i, " is ", DataTypeName(element[i].dtype()),
          element[i].shape().DebugString(), ", not ", DataTypeName(declared.types[i]),
          declared.shapes[i].DebugString(), " as the data set was declared");
    }
  }
  return OkStatus();
}

class LocalGeneratorDataset : public DatasetValue {
 public:
  LocalGeneratorDataset(GeneratorPtr generator, ElementTypes declared)
      : DatasetValue(declared.types, /*blocks=*/true),
        generator_(std::move(generator)),
        declared_(std::move(declared)) {}
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    return DatasetWalkPtr(new Iterator(generator_, declared_));
  }

 private:
  enum class Stage { kIdle, kAsked, kAnswered };
  // Shared with the thread that calls the function, which may outlive the iterator for as long as
  // one call takes.
  struct State {
    GeneratorPtr generator;
    CancellationManager abandoned;  // when the iterator goes
    Mutex mu;
    CondVar changed;
    Stage stage ABSL_GUARDED_BY(mu) = Stage::kIdle;
    // Of the thread while it is asked, then of the iterator.
    Status status;
    DatasetElement element;
    bool end = false;

    void Serve() {
      NextElement next;
      const std::function<bool()> is_abandoned = [this] { return abandoned.IsCancelled(); };
      for (;;) {
        if (!LockWhen(&mu, &changed, &abandoned, [this] { return StageIs(Stage::kAsked); }).ok()) {
          return;
        }
        AssertLocked(&mu);
        mu.Unlock();
        status = Guarded([&] { return Ask(is_abandoned, &next); });
        MutexLock lock(&mu);
        stage = Stage::kAnswered;
        changed.SignalAll();
      }
    }
    Status Ask(const std::function<bool()>& is_abandoned, NextElement* next) {
      element.clear();
      if (!*next) {
        MR_ASSIGN_OR_RETURN(*next, generator->start());
        if (!*next) return errors::InvalidArgument("it gave an empty std::function to call");
      }
      MR_ASSIGN_OR_RETURN(const bool more, (*next)(is_abandoned, &element));
      end = !more;
      return OkStatus();
    }
    bool StageIs(Stage wanted) const ABSL_NO_THREAD_SAFETY_ANALYSIS { return stage == wanted; }
  };

  class Iterator : public DatasetWalk {
   public:
    Iterator(GeneratorPtr generator, const ElementTypes& declared)
        : declared_(declared), state_(std::make_shared<State>()) {
      state_->generator = std::move(generator);
    }
    ~Iterator() override {
      state_->abandoned.StartCancel(errors::Cancelled("the iterator is gone"));
    }

    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      if (ended_) {
        *end = true;
        return OkStatus();
      }
      if (!started_) {
        std::thread([state = state_] { state->Serve(); }).detach();
        started_ = true;
      }
      State& state = *state_;
      {
        // A step before may have been cancelled while it waited: its element is this one's.
        MutexLock lock(&state.mu);
        if (state.stage == Stage::kIdle) state.stage = Stage::kAsked;
        state.changed.SignalAll();
      }
      MR_RETURN_IF_ERROR(LockWhen(&state.mu, &state.changed, call.cancellation,
                                  [&state] { return state.StageIs(Stage::kAnswered); }));
      AssertLocked(&state.mu);
      state.stage = Stage::kIdle;
      const Status status = std::exchange(state.status, OkStatus());
      *element = std::exchange(state.element, {});
      *end = ended_ = status.ok() && state.end;
      state.mu.Unlock();
      return Checked(status, element);
    }
    bool Ready() override {
      MutexLock lock(&state_->mu);
      return ended_ || state_->stage == Stage::kAnswered;
    }

   private:
    Status Checked(Status status, DatasetElement* element) const {
      if (ended_) element->clear();
      if (status.ok() && !ended_) status = CheckElement(*element, declared_);
      // The end of a data set is said by returning false: an OutOfRange would be taken for it.
      if (errors::IsOutOfRange(status)) status = errors::Internal(status.message());
      return status.ok() ? status
                         : Annotate(status, StrCat(" (from the generator made at ",
                                                   state_->generator->made_at, ")"));
    }

    const ElementTypes declared_;
    const std::shared_ptr<State> state_;
    bool started_ = false, ended_ = false;
  };

  const GeneratorPtr generator_;
  const ElementTypes declared_;
};

class GeneratorDatasetKernel : public DatasetKernel {
 public:
  explicit GeneratorDatasetKernel(KernelConstruction& c)
      : DatasetKernel(c), key_(c.attr<std::string>("generator")) {
    declared_.types = c.attr<std::vector<DataType>>("output_types");
    declared_.shapes = c.attr<std::vector<PartialShape>>("output_shapes");
  }

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext&) override {
    if (declared_.types.size() != declared_.shapes.size()) {
      return errors::InvalidArgument("there are ", declared_.types.size(), " types and ",
                                     declared_.shapes.size(), " shapes");
    }
    MR_ASSIGN_OR_RETURN(GeneratorPtr generator, FindLocalGenerator(key_));
    return RefPtr<DatasetValue>(MakeRef<LocalGeneratorDataset>(std::move(generator), declared_));
  }

 private:
  const std::string key_;
  ElementTypes declared_;
};

}  // namespace

void RegisterLocalGeneratorDatasets(KernelRegistry& r) {
  RegisterCpu<GeneratorDatasetKernel>(r, "_GeneratorDataset");
}

}  // namespace millrace
