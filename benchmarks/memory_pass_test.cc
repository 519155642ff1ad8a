#include "benchmarks/memory_pass.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace ttbench {
namespace {

MeasuredMemory Measured() {
  MeasuredMemory measured;
  measured.bytes = {100, 40, 20, 60, std::nullopt, 160};
  measured.events = {{+20, "reshape"}, {+40, "mm"}, {-40, "mm"}, {-20, "reshape"}};
  return measured;
}

CellCost Model() {
  CellCost model;
  model.bytes = Measured().bytes;
  model.events = {{"a", +20}, {"b", +40}, {"a", -20}, {"b", -40}};
  return model;
}

TEST(CompareWithModelTest, SaysNothingWhereAllIsEqual) {
  EXPECT_EQ(CompareWithModel(Measured(), Model()), "");
}

TEST(CompareWithModelTest, NamesEachFigureThatDiffers) {
  CellCost model = Model();
  model.bytes.held = 41;
  model.bytes.step_peak = 0;
  const std::string text = CompareWithModel(Measured(), model);
  EXPECT_NE(text.find("held 40 against 41"), std::string::npos) << text;
  EXPECT_NE(text.find("step peak none against 0"), std::string::npos) << text;
  for (const char* equal : {"weight", "forward peak", "backward peak", "part at"}) {
    EXPECT_EQ(text.find(equal), std::string::npos) << text;
  }
}

TEST(CompareWithModelTest, LeavesPeaksOutWhereTheyAreNotModelled) {
  CellCost model = Model();
  model.bytes.forward_peak = 1;
  model.bytes.backward_peak = 1;
  model.bytes.peak = 1;
  EXPECT_EQ(CompareWithModel(Measured(), model, /*with_peaks=*/false), "");
  model.bytes.weight = 1;
  EXPECT_NE(CompareWithModel(Measured(), model, /*with_peaks=*/false).find("weight 100 against 1"),
            std::string::npos);
}

TEST(CompareWithModelTest, ShowsWhereTheSequencesPart) {
  CellCost model = Model();
  model.bytes.peak = 1;
  model.events[1] = {"scratch", +44};
  std::string text = CompareWithModel(Measured(), model);
  EXPECT_NE(text.find("they part at allocation event 2: measured +40 (mm), model +44 (scratch)"),
            std::string::npos)
      << text;
  model.events.resize(1);
  text = CompareWithModel(Measured(), model);
  EXPECT_NE(text.find("they part at allocation event 2: measured +40 (mm), model none"),
            std::string::npos)
      << text;
}

TEST(CompareWithModelTest, NamesWhatOutlivesTheIteration) {
  MeasuredMemory measured = Measured();
  measured.leaks = {{8, "clone"}, {16, "mm"}};
  const std::string text = CompareWithModel(measured, Model());
  EXPECT_NE(text.find("24 bytes outlive the iteration, the first by clone"), std::string::npos)
      << text;
}

TEST(CompareWithModelTest, ShowsTheModelsFlaw) {
  CellCost model = Model();
  model.bytes.backward_peak = 1;
  model.flaw = "the model's y has no history";
  EXPECT_NE(CompareWithModel(Measured(), model).find("; the model's y has no history"),
            std::string::npos);
}

std::string LineWith(const std::string& text, const std::string& words) {
  const size_t found = text.find(words);
  if (found == std::string::npos) return "";
  const size_t begin = text.rfind('\n', found) + 1;
  return text.substr(begin, text.find('\n', found) - begin);
}

TEST(ShowBesideModelTest, PutsSitesBesideTerms) {
  CellCost model = Model();
  model.events[1] = {"scratch", +44};
  const std::string text = ShowBesideModel(Measured(), model);
  for (const char* words : {"+20  reshape", "|         +20  a"}) {
    EXPECT_NE(LineWith(text, "   1  ").find(words), std::string::npos) << text;
  }
  for (const char* words : {">    2", "+40  mm", "+44  scratch", "<- they part here"}) {
    EXPECT_NE(LineWith(text, "+44").find(words), std::string::npos) << text;
  }
}

TEST(ShowBesideModelTest, LeavesOutWhatIsFarFromTheFirstDifference) {
  MeasuredMemory measured;
  CellCost model;
  for (int64_t i = 1; i <= 100; ++i) {
    measured.events.push_back({i, "mm"});
    model.events.push_back({"T", i == 50 ? 1000 : i});
  }
  const std::string text = ShowBesideModel(measured, model);
  EXPECT_EQ(LineWith(text, "<- they part here").find(">   50"), 0u) << text;
  EXPECT_NE(text.find("... 37 more"), std::string::npos) << text;
  EXPECT_NE(text.find("... 27 more"), std::string::npos) << text;
}

}  // namespace
}  // namespace ttbench
