// SPDX-License-Identifier: Apache-2.0
// What callbacks do when metrics follow a script, against Keras'. Scripted values take the place of
// those in the logs before the callback sees them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "base/strings.h"
#include "tests/fit/counting_model.h"
#include "tests/training_goldens/golden.h"

namespace millrace::testing {
namespace {

// Two steps for each epoch.
FitOptions TwoSteps(int64_t epochs) {
  FitOptions o;
  o.batch_size = 2;
  o.epochs = epochs;
  o.shuffle = false;
  o.verbose = Verbose::kSilent;
  o.validation = ValidationData{Ones(2), Ones(2)};
  return o;
}

bool Same(double a, double b, double rtol = 1e-6) {
  return (std::isnan(a) && std::isnan(b)) || a == b || std::abs(a - b) <= rtol * std::abs(b);
}

Direction DirectionOf(const Arguments& a) {
  std::string mode = "auto";
  a.Get("mode", &mode);
  return mode == "min" ? Direction::kDown : mode == "max" ? Direction::kUp : Direction::kAuto;
}

EarlyStoppingOptions StoppingOf(const Arguments& a) {
  EarlyStoppingOptions o;
  a.Get("monitor", &o.monitor);
  a.Get("min_delta", &o.min_delta);
  a.Get("patience", &o.patience);
  a.Get("baseline", &o.baseline);
  a.Get("restore_best_weights", &o.restore_best_weights);
  a.Get("start_from_epoch", &o.start_from_epoch);
  o.direction = DirectionOf(a);
  return o;
}

std::string CheckStopping(const Json& golden) {
  const std::vector<double> values = Numbers(golden["values"]);
  const std::string metric = golden["metric"];
  EarlyStopping stopping(StoppingOf(Arguments(golden["arguments"])));
  const auto model = CountingModel(1.0, Counted(), {"accuracy", "auc"});
  LambdaCallback script({.on_epoch_end = [&](int64_t epoch, Logs& logs) {
    logs.Set(metric, static_cast<float>(values[epoch]));
    return OkStatus();
  }});
  std::string why;
  int64_t epochs = 0;
  LambdaCallback check({.on_epoch_end = [&](int64_t epoch, Logs&) {
    ++epochs;
    if (golden.contains("raises")) return OkStatus();
    const Json& want = golden["per_epoch"][epoch];
    const bool best_agrees = want["best"].is_null()
                                 ? !stopping.best()
                                 : stopping.best() && Same(*stopping.best(), want["best"]);
    if (stopping.wait() != want["wait"] || stopping.best_epoch() != want["best_epoch"] ||
        model->stop_training() != want["stop"] || !best_agrees) {
      StrAppend(&why, "epoch ", epoch, ": wait ", stopping.wait(), ", best epoch ",
                stopping.best_epoch(), ", not ", want.dump(), "; ");
    }
    return OkStatus();
  }});
  FitOptions options = TwoSteps(static_cast<int64_t>(values.size()));
  options.callbacks = {&script, &stopping, &check};
  const auto history = model->Fit(Ones(4), Ones(4), options);
  if (golden.contains("raises")) return history.ok() ? "no error" : "";
  if (!history.ok()) return history.status().ToString();
  if (epochs != golden["epochs_run"]) StrAppend(&why, epochs, " epochs; ");
  if (stopping.stopped_epoch() != golden["stopped_epoch"]) why += "another stopped_epoch; ";
  const auto weights = model->GetWeights();
  if (!weights.ok()) return weights.status().ToString();
  if ((*weights)[0].scalar<float>() != golden["final_weight"].get<float>()) {
    StrAppend(&why, "the weight is ", (*weights)[0].scalar<float>());
  }
  return why;
}

ReduceLrOnPlateauOptions PlateauOf(const Arguments& a) {
  ReduceLrOnPlateauOptions o;
  a.Get("monitor", &o.monitor);
  a.Get("factor", &o.factor);
  a.Get("patience", &o.patience);
  a.Get("min_delta", &o.min_delta);
  a.Get("cooldown", &o.cooldown);
  a.Get("min_lr", &o.min_learning_rate);
  o.direction = DirectionOf(a);
  return o;
}

std::string CheckPlateau(const Json& golden) {
  const std::vector<double> values = Numbers(golden["values"]);
  const std::string metric = golden["metric"];
  ReduceLrOnPlateau plateau(PlateauOf(Arguments(golden["arguments"])));
  const auto model = CountingModel(golden["initial_learning_rate"], Counted(), {"accuracy"});
  LambdaCallback script({.on_epoch_end = [&](int64_t epoch, Logs& logs) {
    logs.Set(metric, static_cast<float>(values[epoch]));
    return OkStatus();
  }});
  std::string why;
  LambdaCallback check({.on_epoch_end = [&](int64_t epoch, Logs& logs) {
    if (golden.contains("raises")) return OkStatus();
    const Json& want = golden["per_epoch"][epoch];
    const auto rate = model->GetLearningRate();
    if (!rate.ok()) return rate.status();
    if (!Same(*rate, want["learning_rate_after"]) || plateau.wait() != want["wait"] ||
        plateau.cooldown_counter() != want["cooldown_counter"]) {
      StrAppend(&why, "epoch ", epoch, ": rate ", *rate, ", wait ", plateau.wait(), ", cooldown ",
                plateau.cooldown_counter(), ", not ", want.dump(), "; ");
    }
    std::string last;
    for (const auto& [name, value] : logs) last = name;
    if (last != "learning_rate" || !Same(logs[last], golden["logged_learning_rate"][epoch])) {
      StrAppend(&why, "epoch ", epoch, " logs ", logs[last], " as ", last, "; ");
    }
    return OkStatus();
  }});
  FitOptions options = TwoSteps(static_cast<int64_t>(values.size()));
  options.callbacks = {&script, &plateau, &check};
  const auto history = model->Fit(Ones(4), Ones(4), options);
  if (golden.contains("raises")) return history.ok() ? "no error" : "";
  return history.ok() ? why : history.status().ToString();
}

std::string CheckSchedule(const Json& golden) {
  const std::string name = golden["name"];
  LearningRateScheduler scheduler([&](int64_t epoch, double rate) {
    if (name == "epoch") return 0.1 * std::pow(0.5, static_cast<double>(epoch / 2));
    if (name == "constant") return 0.03;
    return epoch < 2 ? rate : rate * std::exp(-0.1);
  });
  const auto model = CountingModel(golden["initial_learning_rate"], Counted());
  std::vector<double> rates;
  LambdaCallback check({.on_epoch_end = [&](int64_t, Logs&) {
    const auto rate = model->GetLearningRate();
    rates.push_back(rate.ok() ? *rate : -1);
    return OkStatus();
  }});
  FitOptions options = TwoSteps(static_cast<int64_t>(golden["per_epoch"].size()));
  options.validation.reset();
  options.callbacks = {&scheduler, &check};
  const auto history = model->Fit(Ones(4), Ones(4), options);
  if (!history.ok()) return history.status().ToString();
  if (Json(history->names()) != golden["history_keys"]) return Json(history->names()).dump();
  const std::vector<double> logged = history->values("learning_rate");
  for (std::size_t i = 0; i < rates.size(); ++i) {
    if (!Same(rates[i], golden["per_epoch"][i]) || !Same(logged[i], golden["logged"][i])) {
      return StrCat("epoch ", i, ": ", rates[i], ", logged ", logged[i]);
    }
  }
  return rates.size() == golden["per_epoch"].size() ? "" : "another number of epochs";
}

std::string CheckCsv(const Json& golden, const std::string& path) {
  const Arguments a(golden["arguments"]);
  CsvLoggerOptions options;
  a.Get("separator", &options.separator);
  a.Get("append", &options.append);
  CsvLogger logger(path, options);
  for (const Json& run : golden["runs"]) {
    const auto model = CountingModel(0.1, Counted(), {"accuracy"});
    LambdaCallback script({.on_epoch_end = [&](int64_t epoch, Logs& logs) {
      for (const auto& [name, value] : run["train"][epoch][0].items()) {
        logs.Set(name, value.get<float>());
      }
      for (const auto& [name, value] : run["validation"][epoch].items()) {
        logs.Set("val_" + name, value.get<float>());
      }
      return OkStatus();
    }});
    FitOptions fit = TwoSteps(static_cast<int64_t>(run["train"].size()));
    fit.callbacks = {&script, &logger};
    const auto history = model->Fit(Ones(4), Ones(4), fit);
    if (!history.ok()) return history.status().ToString();
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    if (text.str() != run["file"]) return "the file is " + text.str();
  }
  return "";
}

std::string CheckTermination(const Json& golden) {
  const double value = Numbers(golden["value"])[0];
  const std::vector<int64_t> at = golden["at_epoch_batch"];
  // Three steps of one sample each, epoch after epoch.
  std::vector<float> script(3 * 3, 1.0f);
  script[at[0] * 3 + at[1]] = static_cast<float>(value);
  const auto model = CountingModel(0.1, Scripted());
  TerminateOnNan terminate;
  int64_t epoch = 0;
  Json steps = Json::array();
  LambdaCallback record({.on_epoch_begin =
                             [&](int64_t number) {
                               epoch = number;
                               return OkStatus();
                             },
                         .on_train_batch_end =
                             [&](int64_t batch, const Logs&) {
                               steps.push_back({epoch, batch});
                               return OkStatus();
                             }});
  FitOptions options;
  options.batch_size = 1;
  options.epochs = 3;
  options.steps_per_epoch = 3;
  options.shuffle = false;
  options.verbose = Verbose::kSilent;
  options.callbacks = {&record, &terminate};
  const auto history = model->Fit(Ones(9), Column(script), options);
  if (!history.ok()) return history.status().ToString();
  if (steps != golden["steps_done"]) return "steps " + steps.dump();
  const std::vector<double> losses = history->values("loss");
  const std::vector<double> want = Numbers(golden["history_loss"]);
  if (losses.size() != want.size()) return "another number of epochs";
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (!Same(losses[i], want[i])) return StrCat("loss of epoch ", i, ": ", losses[i]);
  }
  return "";
}

Json NamesOf(const Logs& logs) {
  Json names = Json::array();
  for (const auto& [name, value] : logs) names.push_back(name);
  return names;
}

// Writes down every call.
class Calls : public Callback {
 public:
  Calls(std::string name, Json* calls) : name_(std::move(name)), calls_(calls) {}
  void SetModel(Model* model) override {
    Callback::SetModel(model);
    (void)Add({Name("set_model")});
  }
  void SetParams(const LoopParams& params) override {
    Callback::SetParams(params);
    (void)Add({Name("set_params"), {"verbose", "epochs", "steps"}});
  }
  Status OnTrainBegin() override { return Add({Name("on_train_begin"), Json::array()}); }
  Status OnTrainEnd(const Logs& logs) override {
    return Add({Name("on_train_end"), NamesOf(logs)});
  }
  Status OnEpochBegin(int64_t epoch) override {
    return Add({Name("on_epoch_begin"), epoch, Json::array()});
  }
  Status OnEpochEnd(int64_t epoch, Logs& logs) override {
    if (stops_at == "epoch") model()->set_stop_training(true);
    return Add({Name("on_epoch_end"), epoch, NamesOf(logs)});
  }
  Status OnTrainBatchBegin(int64_t batch) override {
    return Add({Name("on_train_batch_begin"), batch, Json::array()});
  }
  Status OnTrainBatchEnd(int64_t batch, const Logs& logs) override {
    if (stops_at == "batch" && batch == 1) model()->set_stop_training(true);
    return Add({Name("on_train_batch_end"), batch, NamesOf(logs)});
  }
  Status OnTestBegin() override { return Add({Name("on_test_begin"), Json::array()}); }
  Status OnTestEnd(const Logs& logs) override { return Add({Name("on_test_end"), NamesOf(logs)}); }
  Status OnTestBatchBegin(int64_t batch) override {
    return Add({Name("on_test_batch_begin"), batch, Json::array()});
  }
  Status OnTestBatchEnd(int64_t batch, const Logs& logs) override {
    return Add({Name("on_test_batch_end"), batch, NamesOf(logs)});
  }
  Status OnPredictBegin() override { return Add({Name("on_predict_begin"), Json::array()}); }
  Status OnPredictEnd() override { return Add({Name("on_predict_end"), Json::array()}); }
  Status OnPredictBatchBegin(int64_t batch) override {
    return Add({Name("on_predict_batch_begin"), batch, Json::array()});
  }
  Status OnPredictBatchEnd(int64_t batch, const Tensor&) override {
    return Add({Name("on_predict_batch_end"), batch, {"outputs"}});
  }
  std::string stops_at;

 private:
  std::string Name(const char* method) const { return name_ + "." + method; }
  Status Add(Json call) {
    calls_->push_back(std::move(call));
    return OkStatus();
  }
  const std::string name_;
  Json* const calls_;
};

// The calls of a case; its name says what was done, its calls how many batches there were.
Json CallsOf(const std::string& name) {
  Json calls = Json::array();
  Calls a("a", &calls), b("b", &calls);
  const auto model = CountingModel(0.1, Counted(), {"mae"});
  FitOptions fit;
  fit.verbose = Verbose::kSilent;
  fit.callbacks = {&a};
  const auto validate_on = [&](int64_t rows) {
    fit.validation = ValidationData{Ones(rows), Ones(rows)};
  };
  if (name == "evaluate") {
    EXPECT_TRUE(model
                    ->Evaluate(Ones(6), Ones(6),
                               {.batch_size = 3, .callbacks = {&a}, .verbose = Verbose::kSilent})
                    .ok());
    return calls;
  }
  if (name == "predict") {
    EXPECT_TRUE(model->Predict(Ones(6), {.batch_size = 3, .callbacks = {&a}}).ok());
    return calls;
  }
  fit.batch_size = 3;
  if (name == "fit_with_validation" || name == "fit_stopped_in_first_epoch") {
    fit.batch_size = 2;
    fit.epochs = 2;
    validate_on(name == "fit_with_validation" ? 4 : 6);
    if (name == "fit_stopped_in_first_epoch") a.stops_at = "batch";
  } else if (name == "fit_two_callbacks") {
    fit.callbacks = {&a, &b};
  } else if (name == "fit_validation_freq_2") {
    fit.batch_size = 6;
    fit.epochs = 2;
    fit.validation_freq = 2;
    validate_on(6);
  } else {
    fit.epochs = 2;
    validate_on(6);
    a.stops_at = "epoch";
  }
  const auto history = model->Fit(Ones(6), Ones(6), fit);
  EXPECT_TRUE(history.ok()) << history.status();
  return calls;
}

template <typename Check>
void CheckAll(const std::string& family, const Check& check) {
  const Json golden = LoadGolden(StrCat("callbacks/", family, ".json"));
  Tally tally(StrCat("callbacks/", family));
  int number = 0;
  for (const Json& each : golden["cases"]) {
    std::string name = StrCat(number++);
    if (each.contains("arguments")) name += " " + each["arguments"].dump();
    tally.Add(name, check(each));
  }
}

TEST(CallbacksGolden, EarlyStopping) { CheckAll("early_stopping", CheckStopping); }
TEST(CallbacksGolden, ReduceLrOnPlateau) { CheckAll("reduce_lr_on_plateau", CheckPlateau); }
TEST(CallbacksGolden, LearningRateScheduler) { CheckAll("learning_rate_scheduler", CheckSchedule); }
TEST(CallbacksGolden, TerminateOnNan) { CheckAll("terminate_on_nan", CheckTermination); }

TEST(CallbacksGolden, CsvLogger) {
  int number = 0;
  CheckAll("csv_logger", [&](const Json& golden) {
    const std::string path = StrCat(::testing::TempDir(), "/csv", getpid(), "_", number++);
    const std::string why = CheckCsv(golden, path);
    std::remove(path.c_str());
    return why;
  });
}

TEST(CallbacksGolden, CallsComeInKerasOrder) {
  CheckAll("call_order", [](const Json& golden) -> std::string {
    const Json calls = CallsOf(golden["name"]);
    if (calls == golden["calls"]) return "";
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (i >= golden["calls"].size() || calls[i] != golden["calls"][i]) {
        return StrCat(golden["name"].get<std::string>(), " call ", i, ": ", calls[i].dump());
      }
    }
    return "too few calls";
  });
}

}  // namespace
}  // namespace millrace::testing
