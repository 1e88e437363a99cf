// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/cluster_resolver.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Error(const Status& status) { return std::string(status.message()); }

std::string Describe(const StatusOr<ResolvedTask>& resolved) {
  if (!resolved.ok()) return "error: " + Error(resolved.status());
  return resolved->cluster.ToString() + " " + resolved->job_name.value_or("-") + ":" +
         (resolved->task_index.has_value() ? std::to_string(*resolved->task_index) : "-") + " " +
         std::to_string(resolved->local_rank) + "/" + std::to_string(resolved->local_size);
}

TEST(HostListTest, IsExpandedWithItsZerosKept) {
  EXPECT_THAT(ExpandHostList("a[1-3,07],b").value(), ElementsAre("a1", "a2", "a3", "a07", "b"));
  EXPECT_THAT(ExpandHostList("n[008-010]-ib0,tux").value(),
              ElementsAre("n008-ib0", "n009-ib0", "n010-ib0", "tux"));
}

TEST(HostListTest, ThatCannotBeReadIsSaidToBeSo) {
  for (const char* text : {"", "a,,b", "a[1-2", "a]1[", "a[3-1]", "a[x]", "a[1-2][3-4]", "a[]",
                           "a[0-99999999]", "a[1-9999999999999999999]", "a[1,]"}) {
    const Status status = ExpandHostList(text).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
  }
  EXPECT_THAT(Error(ExpandHostList("a[0-99999]").status()), HasSubstr("more than 65536 hosts"));
}

std::map<std::string, std::string> SlurmStep() {
  return {{"SLURM_PROCID", "5"},
          {"SLURM_STEP_NUM_TASKS", "9"},
          {"SLURM_STEP_NODELIST", "n[1-2],m1"},
          {"SLURM_STEP_TASKS_PER_NODE", "4(x2),1"},
          {"CUDA_VISIBLE_DEVICES", "0,1,2,3"}};
}

TEST(SlurmTest, FillsJobsHostByHost) {
  SlurmOptions options;
  options.jobs = {{"ps", 1}, {"worker", 8}};
  const auto resolved = ResolveSlurm(options, FixedEnvironment(SlurmStep()));
  EXPECT_EQ(Describe(resolved),
            "ps|m1:8888,worker|m1:8889;m1:8890;m1:8891;n1:8888;n1:8889;n1:8890;n1:8891;n2:8888 "
            "worker:4 1/4");
  EXPECT_EQ(resolved->visible_gpus, "1");
  EXPECT_EQ(resolved->source, "Slurm");
}

TEST(SlurmTest, SaysWhatIsMissingOrDoesNotFit) {
  auto step = SlurmStep();
  step.erase("SLURM_STEP_NODELIST");
  EXPECT_EQ(Describe(ResolveSlurm({}, FixedEnvironment(step))),
            "error: SLURM_STEP_NODELIST not found in environment. Not running inside a SLURM "
            "step?");
  SlurmOptions options;
  options.jobs = {{"worker", 10}};
  EXPECT_EQ(Describe(ResolveSlurm(options, FixedEnvironment(SlurmStep()))),
            "error: Requested 10 tasks but only 9 were assigned.");
  options.jobs.clear();
  options.gpus_per_task = 2;
  EXPECT_THAT(Describe(ResolveSlurm(options, FixedEnvironment(SlurmStep()))),
              HasSubstr("Requested more GPUs per node than available."));
  for (const char* tasks : {"4(x2)", "4(x2,1", "0(x3)", "4(x99999999999)", "a", "4(x2),1,1", ""}) {
    step = SlurmStep();
    step["SLURM_STEP_TASKS_PER_NODE"] = tasks;
    EXPECT_EQ(ResolveSlurm({}, FixedEnvironment(step)).status().code(),
              StatusCode::kInvalidArgument)
        << tasks;
  }
}

TEST(RanksTest, OfMpirunOnOneHostNeedNoHosts) {
  EXPECT_EQ(Describe(ResolveMpi({}, FixedEnvironment({{"OMPI_COMM_WORLD_RANK", "1"},
                                                      {"OMPI_COMM_WORLD_SIZE", "2"},
                                                      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}))),
            "worker|127.0.0.1:8888;127.0.0.1:8889 worker:1 1/2");
}

TEST(RanksTest, OfSeveralHostsNeedTheirNames) {
  std::map<std::string, std::string> variables = {
      {"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
  EXPECT_THAT(Describe(ResolveMpi({}, FixedEnvironment(variables))),
              HasSubstr("MILLRACE_HOSTS=a,b"));
  variables["MILLRACE_HOSTS"] = "n[1-2]";
  EXPECT_EQ(Describe(ResolveMpi({.jobs = {{"ps", 1}, {"worker", 3}}}, FixedEnvironment(variables))),
            "ps|n1:8888,worker|n1:8889;n2:8888;n2:8889 worker:2 1/2");
  variables["MILLRACE_HOSTS"] = "n1";
  EXPECT_THAT(Describe(ResolveMpi({}, FixedEnvironment(variables))),
              HasSubstr("runs 4 tasks, but 1 hosts with 2 each are named"));
}

std::map<std::string, std::string> Torchrun() {
  return {{"RANK", "1"},
          {"WORLD_SIZE", "2"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", "29500"}};
}

TEST(RanksTest, OfTorchrunLeaveItsPortAlone) {
  EXPECT_EQ(Describe(ResolveTorchrun({}, FixedEnvironment(Torchrun()))),
            "worker|127.0.0.1:29501;127.0.0.1:29502 worker:1 1/2");
  for (const char* bad : {"-1", "2", "x", "", "99999999999999999999"}) {
    auto variables = Torchrun();
    variables["RANK"] = bad;
    EXPECT_FALSE(ResolveTorchrun({}, FixedEnvironment(variables)).ok()) << bad;
  }
}

TEST(SageMakerTest, HostsAreWorkersInOrderOfTheirNames) {
  std::map<std::string, std::string> variables = {{"SM_HOSTS", R"(["algo-2", "algo-1"])"},
                                                  {"SM_CURRENT_HOST", "algo-2"}};
  EXPECT_EQ(Describe(ResolveSageMaker(2223, FixedEnvironment(variables))),
            "worker|algo-1:2223;algo-2:2223 worker:1 0/1");
  variables["SM_CURRENT_HOST"] = "algo-3";
  EXPECT_THAT(Describe(ResolveSageMaker(2223, FixedEnvironment(variables))),
              HasSubstr("'algo-3' is not one of SM_HOSTS"));
  for (const char* bad : {"", "[]", "{}", "[1]", "[\"a\"", "null"}) {
    variables["SM_HOSTS"] = bad;
    EXPECT_FALSE(ResolveSageMaker(2223, FixedEnvironment(variables)).ok()) << bad;
  }
}

TEST(KubernetesTest, PodsOfStatefulSetsAreTasks) {
  std::map<std::string, std::string> variables = {{"MILLRACE_JOBS", "ps=1,worker=2"},
                                                  {"MILLRACE_SERVICE", "mnist"},
                                                  {"HOSTNAME", "mnist-worker-1"}};
  EXPECT_EQ(Describe(ResolveFromEnvironment(FixedEnvironment(variables))),
            "ps|mnist-ps-0.mnist:8470,worker|mnist-worker-0.mnist:8470;mnist-worker-1.mnist:8470 "
            "worker:1 0/1");
  for (const char* bad : {"mnist-worker-2", "worker-1", "mnist-worker", "mnist-chief-0", "x"}) {
    variables["HOSTNAME"] = bad;
    EXPECT_THAT(Describe(ResolveKubernetes({}, FixedEnvironment(variables))),
                HasSubstr("is none of these: <name>-ps-<0 to 0>, <name>-worker-<0 to 1>"))
        << bad;
  }
  variables["MILLRACE_JOBS"] = "ps=0";
  EXPECT_FALSE(ResolveKubernetes({}, FixedEnvironment(variables)).ok());
}

constexpr char kTfConfig[] = R"({"cluster": {"worker": ["a:1", "b:1"], "ps": ["c:1"]},
                                 "task": {"type": "worker", "index": "1"}, "rpc_layer": "grpc"})";

TEST(TfConfigTest, GoesBeforeAllOthers) {
  auto variables = Torchrun();
  variables["TF_CONFIG"] = kTfConfig;
  const auto resolved = ResolveFromEnvironment(FixedEnvironment(variables));
  EXPECT_EQ(Describe(resolved), "ps|c:1,worker|a:1;b:1 worker:1 0/1");
  EXPECT_EQ(resolved->rpc_layer, "grpc");
  EXPECT_EQ(MasterTarget(*resolved).value(), "grpc://b:1");
  variables["TF_CONFIG"] = R"({"cluster": {"worker": ["a:1"]}, "session_master": 3})";
  EXPECT_THAT(Describe(ResolveFromEnvironment(FixedEnvironment(variables))),
              HasSubstr("\"session_master\" is not text"));
}

TEST(TfConfigTest, WithoutOneAProgramIsByItself) {
  const auto alone = ResolveFromEnvironment(FixedEnvironment({}));
  EXPECT_EQ(Describe(alone), " -:- 0/1");
  EXPECT_TRUE(IsChief(*alone).value());
  EXPECT_EQ(MasterTarget(*alone).value(), "");
  EXPECT_EQ(WorkerCount(*alone).value(), 1);
  EXPECT_EQ(CollectiveLeader(*alone), "");
}

ResolvedTask Task(const std::string& cluster, const std::string& job, int index) {
  ResolvedTask task;
  task.cluster = ClusterSpec::Parse(cluster).value();
  task.job_name = job;
  task.task_index = index;
  return task;
}

TEST(RolesTest, AreThoseOfTheTable) {
  const std::string with_chief = "chief|a:1,ps|b:1,worker|c:1;d:1";
  const std::string without = "ps|b:1,worker|c:1;d:1";
  EXPECT_TRUE(IsChief(Task(with_chief, "chief", 0)).value());
  EXPECT_FALSE(IsChief(Task(with_chief, "worker", 0)).value());
  EXPECT_TRUE(IsChief(Task(without, "worker", 0)).value());
  EXPECT_FALSE(IsChief(Task(without, "worker", 1)).value());
  EXPECT_FALSE(IsChief(Task(without, "ps", 0)).value());
  EXPECT_TRUE(IsChief(Task("evaluator|a:1", "evaluator", 0)).value());
  EXPECT_FALSE(IsChief(Task(without, "worker", 2)).ok());

  EXPECT_EQ(WorkerCount(Task(with_chief, "chief", 0)).value(), 3);
  EXPECT_EQ(WorkerRank(Task(with_chief, "chief", 0)).value(), 0);
  EXPECT_EQ(WorkerRank(Task(with_chief, "worker", 1)).value(), 2);
  EXPECT_EQ(WorkerRank(Task(without, "worker", 1)).value(), 1);
  EXPECT_FALSE(WorkerCount(Task(without, "ps", 0)).ok());

  EXPECT_EQ(CollectiveLeader(Task(with_chief, "worker", 1)), "/job:chief/replica:0/task:0");
  EXPECT_EQ(CollectiveLeader(Task(without, "worker", 1)), "/job:worker/replica:0/task:0");
  EXPECT_EQ(CollectiveLeader(Task("evaluator|a:1", "evaluator", 0)), "");
}

TEST(SimpleClusterTest, IsWhatTheProgramSays) {
  const ClusterSpec spec = *ClusterSpec::Parse("ps|b:1,worker|a:1;c:1");
  const StatusOr<ResolvedTask> worker = SimpleCluster(spec, "worker", 1);
  EXPECT_EQ(Describe(worker), "ps|b:1,worker|a:1;c:1 worker:1 0/1");
  EXPECT_EQ(MasterTarget(*worker).value(), "grpc://c:1");
  EXPECT_EQ(WorkerRank(*worker).value(), 1);
  EXPECT_EQ(worker->rpc_layer, "grpc");
  EXPECT_EQ(Describe(SimpleCluster(spec, "ps")), "ps|b:1,worker|a:1;c:1 ps:0 0/1");
  for (const auto& [job, task] : {std::pair("chief", 0), std::pair("worker", 2)}) {
    EXPECT_EQ(SimpleCluster(spec, job, task).status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(SimpleCluster({}, "worker").status().code(), StatusCode::kInvalidArgument);
}

TEST(UnionTest, IsOfDisjointTasksAndTheFirstSaysWhoThisIs) {
  const ResolvedTask parts[] = {Task("worker|a:1", "worker", 0), Task("ps|b:1", "ps", 0)};
  EXPECT_EQ(Describe(Union(parts)), "ps|b:1,worker|a:1 worker:0 0/1");
  const ResolvedTask clash[] = {Task("worker|a:1", "worker", 0), Task("worker|b:1", "worker", 0)};
  EXPECT_EQ(Describe(Union(clash)),
            "error: Duplicate keys detected when merging two ClusterSpecs: /job:worker/task:0 is "
            "at a:1 and at b:1");
  EXPECT_FALSE(Union({}).ok());
}

}  // namespace
}  // namespace millrace
