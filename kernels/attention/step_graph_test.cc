#include "kernels/attention/step_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "kernels/attention/storage.h"

namespace ttbench {
namespace {

constexpr int64_t kB = 2, kL = 5, kH = 3;

int Find(const StepGraph& graph, const std::string& name) {
  for (size_t i = 0; i < graph.buffers.size(); ++i) {
    if (graph.buffers[i].name == name) return static_cast<int>(i);
  }
  ADD_FAILURE() << "no buffer is named " << name;
  return 0;
}

std::set<std::string> NamesOf(const StepGraph& graph, const std::vector<int>& buffers) {
  std::set<std::string> names;
  for (int buffer : buffers) names.insert(graph.buffers[buffer].name);
  return names;
}

// Three tensors of the size of the context a step: the gradients of the context by either product,
// and their sum. None is an output.
TEST(AttentionStepTest, ThreeBuffersOfTheContextsSize) {
  const StepGraph graph = AttentionStep(kB, kL, kH);
  std::set<std::string> names;
  for (const Buffer& buffer : graph.buffers) {
    if (buffer.elements() != kB * kL * kH) continue;
    names.insert(buffer.name);
    EXPECT_NE(buffer.role, Role::kOutput) << buffer.name;
  }
  EXPECT_EQ(names,
            (std::set<std::string>{"mm1.gradInput[1]", "mm2.gradInput[2]", "sum of d(context)"}));
}

// Outputs q, c (twice: before and after its sum), [c; h], before and after tanh; scores (twice) and
// attention. GradInputs of h, q (twice), c, [c; h] in parts and whole, before tanh, after each sum;
// the sum of d(h).
TEST(AttentionStepTest, BytesOfAStep) {
  const StepGraph graph = AttentionStep(kB, kL, kH);
  int64_t outputs = 0, gradients = 0;
  for (const Buffer& buffer : graph.buffers) {
    (buffer.role == Role::kOutput ? outputs : gradients) += buffer.elements();
  }
  EXPECT_EQ(outputs, 7 * kB * kH + 3 * kB * kL);
  EXPECT_EQ(gradients, 3 * kB * kL * kH + 10 * kB * kH + 4 * kB * kL);
}

TEST(FindHazardTest, ClonesAreSafe) {
  EXPECT_EQ(FindHazard(AttentionStep(kB, kL, kH), OwnStorage(AttentionStep(kB, kL, kH))),
            std::nullopt);
  const StepGraph decoder = DecoderStep(kB, kL, kH, 2, 4);
  EXPECT_EQ(FindHazard(decoder, OwnStorage(decoder)), std::nullopt);
}

// Each forward output that a backward reads, shared by mistake.
TEST(FindHazardTest, CatchesUnsafeSharing) {
  const StepGraph graph = AttentionStep(kB, kL, kH);
  const struct {
    const char* buffer;
    const char* reader;
  } cases[] = {{"softmax.output", "softmax's backward"},  // or mm2's, which comes first
               {"linear_q.output", "mm1's backward"},
               {"join.output", "linear_c's backward"},
               {"tanh.output", "the caller, after the forward"},
               {"sum of d(h)", "the caller, after the backward"}};
  for (const auto& c : cases) {
    const auto hazard = FindHazard(graph, ShareAcrossSteps(graph, {Find(graph, c.buffer)}));
    ASSERT_TRUE(hazard.has_value()) << c.buffer;
    EXPECT_NE(hazard->find(std::string("reads ") + c.buffer), std::string::npos) << *hazard;
    if (std::string(c.buffer) != "softmax.output") {
      EXPECT_NE(hazard->find(c.reader), std::string::npos) << *hazard;
    }
  }
  // In one step alone nothing is overwritten.
  EXPECT_EQ(FindHazard(graph, ShareAcrossSteps(graph, {Find(graph, "softmax.output")}), 1),
            std::nullopt);
}

TEST(FindHazardTest, CatchesStorageTakenTooEarly) {
  const StepGraph graph = AttentionStep(kB, kL, kH);
  // q is read by mm1's backward, which comes after that of linear_c.
  StoragePlan plan = OwnStorage(graph);
  plan.place[Find(graph, "tanh.gradInput")] = Find(graph, "linear_q.output");
  const auto hazard = FindHazard(graph, plan);
  ASSERT_TRUE(hazard.has_value());
  EXPECT_NE(hazard->find("mm1's backward"), std::string::npos) << *hazard;
  // A product cannot write over its operand.
  plan = OwnStorage(graph);
  plan.place[Find(graph, "linear_c.gradInput")] = Find(graph, "join.output");
  EXPECT_NE(FindHazard(graph, plan).value_or("").find("still reads"), std::string::npos);
}

TEST(ShareableBuffersTest, AllButWhatIsReadAfterItsStep) {
  const StepGraph graph = AttentionStep(kB, kL, kH);
  std::set<std::string> kept = NamesOf(graph, ShareableBuffers(graph));
  std::set<std::string> own;
  for (const Buffer& buffer : graph.buffers) {
    if (!kept.count(buffer.name)) own.insert(buffer.name);
  }
  EXPECT_EQ(own, (std::set<std::string>{"linear_q.output", "softmax.output", "join.output",
                                        "tanh.output", "sum of d(h)"}));
  EXPECT_EQ(FindHazard(graph, ShareAcrossSteps(graph, ShareableBuffers(graph)), 5), std::nullopt);
}

// Steps read the states of the step before: those stay.
TEST(ShareableBuffersTest, DecoderStatesOutliveTheirStep) {
  const StepGraph graph = DecoderStep(kB, kL, kH, 2, 4);
  const std::set<std::string> shared = NamesOf(graph, ShareableBuffers(graph));
  for (const char* name : {"lstm1.c.output", "lstm1.h.output", "lstm2.h.output", "tanh.output",
                           "lstm1.in_gate.output", "feed_join.output"}) {
    EXPECT_FALSE(shared.count(name)) << name;
  }
  for (const char* name : {"lstm1.i2h.output", "lstm2.all_input.output", "lstm2.split.gradInput",
                           "lstm1.kept.output", "sum of d(lstm1.c)", "mm1.output"}) {
    EXPECT_TRUE(shared.count(name)) << name;
  }
  EXPECT_EQ(FindHazard(graph, ShareAcrossSteps(graph, ShareableBuffers(graph)), 5), std::nullopt);
}

// The first patch's scope is safe; the sequel's is that of the modules without nngraph's sums.
TEST(ScopesTest, OfThePatches) {
  const StepGraph graph = AttentionStep(kB, kL, kH);
  EXPECT_EQ(NamesOf(graph, ProductGradients(graph)),
            (std::set<std::string>{"mm1.gradInput[1]", "mm1.gradInput[2]", "mm2.gradInput[1]",
                                   "mm2.gradInput[2]"}));
  EXPECT_EQ(FindHazard(graph, ShareAcrossSteps(graph, ProductGradients(graph))), std::nullopt);
  std::set<std::string> modules = NamesOf(graph, ShareableModuleBuffers(graph));
  EXPECT_FALSE(modules.count("sum of d(context)"));
  modules.insert("sum of d(context)");
  EXPECT_EQ(modules, NamesOf(graph, ShareableBuffers(graph)));
}

// Sharing saves T - 1 of the T buffers: the reduction of a shared variable is the number of clones.
TEST(StorageBytesTest, SharingLeavesOneOfT) {
  const StepGraph graph = AttentionStep(kB, kL, kH);
  const int64_t clones = StorageBytes(graph, OwnStorage(graph), 7, 4);
  EXPECT_EQ(clones, 7 * 4 * (3 * kB * kL * kH + 17 * kB * kH + 7 * kB * kL));
  const int64_t shared =
      StorageBytes(graph, ShareAcrossSteps(graph, ProductGradients(graph)), 7, 4);
  EXPECT_EQ(clones - shared, 6 * 4 * (2 * kB * kL * kH + kB * kH + kB * kL));
}

// The modules whose output and only gradInput have one size, and half of their bytes.
TEST(ReuseOutputsTest, TakesTheOutputsStorageWhereSizesAgree) {
  const StepGraph graph = AttentionStep(kB, kL, kH);
  const StoragePlan plan = ReuseOutputs(graph);
  EXPECT_EQ(FindHazard(graph, plan), std::nullopt);
  std::set<std::string> reused;
  for (size_t i = 0; i < graph.buffers.size(); ++i) {
    if (plan.place[i] != static_cast<int>(i)) {
      reused.insert(graph.buffers[i].name + " in " + graph.buffers[plan.place[i]].name);
    }
  }
  EXPECT_EQ(reused, (std::set<std::string>{
                        "linear_q.gradInput in linear_q.output", "sum1.gradInput in sum1.output",
                        "softmax.gradInput in softmax.output", "sum2.gradInput in sum2.output",
                        "tanh.gradInput in tanh.output"}));
  const int64_t saved =
      StorageBytes(graph, OwnStorage(graph), 1, 1) - StorageBytes(graph, plan, 1, 1);
  EXPECT_EQ(saved, 3 * kB * kH + 2 * kB * kL);
}

}  // namespace
}  // namespace ttbench
