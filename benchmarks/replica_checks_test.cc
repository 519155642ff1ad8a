#include "benchmarks/replica_checks.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <string>

#include "kernels/variant.h"

namespace ttbench {
namespace {

constexpr uint64_t kSeed = 5;

std::map<std::string, ReplicaCheck> Check(const std::string& variant, const LinearProblem& problem,
                                          Keeping keeping, Exchange* exchange = nullptr) {
  const std::string rendezvous = testing::TempDir() + "/rendezvous";
  unlink(rendezvous.c_str());
  const ReplicaFindings findings =
      CheckReplicas(*FindLinearVariant(variant), problem, keeping, kSeed, 2, rendezvous);
  if (exchange) *exchange = findings.exchange;
  std::map<std::string, ReplicaCheck> checks;
  for (const ReplicaCheck& check : findings.checks) checks[check.check] = check;
  return checks;
}

TEST(ReplicaChecksTest, EveryVariantPassesAllOfThem) {
  for (const auto& variant : LinearVariants()) {
    if (variant->name() == "auto") continue;
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      const LinearProblem problem{TtShape({2, 3, 5}, {3, 2, 4}, {4, 6}), 6, Phase::kTrain, dtype};
      if (!variant->WhySkipped(problem).empty()) continue;
      const auto checks = Check(variant->name(), problem, Keeping::kRegistered);
      EXPECT_EQ(checks.size(), 6u);
      for (const auto& [name, check] : checks) {
        EXPECT_TRUE(check.ok) << variant->name() << " " << Name(dtype) << " " << name << ": "
                              << check.reason;
      }
    }
  }
}

// Each gradient once in either direction, and what gloo says beside it.
TEST(ReplicaChecksTest, TwoProcessesSendTheGradientsOnce) {
  const LinearProblem problem{TtShape::Cube(2, 64, 8), 4, Phase::kTrain, DType::kFloat32};
  Exchange exchange;
  Check("sequential", problem, Keeping::kRegistered, &exchange);
  EXPECT_EQ(exchange.gradient_bytes, 4 * 2 * 64 * 64 * 8);
  if (!exchange.sent_bytes) GTEST_SKIP() << "the kernel does not count bytes of connections";
  EXPECT_GE(*exchange.sent_bytes, exchange.gradient_bytes);
  EXPECT_LE(*exchange.sent_bytes, exchange.gradient_bytes + 2048);
  EXPECT_GT(exchange.step_ns, exchange.exchange_ns);
  EXPECT_GT(exchange.joined_ns, 0);
}

// What went wrong in t3nsor.
TEST(ReplicaChecksTest, PlainAttributesStayBehind) {
  const LinearProblem problem{TtShape::Cube(3, 4, 3), 6, Phase::kTrain, DType::kFloat32};
  Exchange exchange;
  const auto checks = Check("sequential", problem, Keeping::kPlain, &exchange);
  for (const auto& [name, check] : checks) {
    EXPECT_FALSE(check.ok) << name;
    EXPECT_FALSE(check.reason.empty()) << name;
  }
  EXPECT_EQ(checks.at("to-dtype").reason, "0 of 3 weights have the new type");
  EXPECT_EQ(checks.at("to-device").reason, "to() moves 0 of 3 weights");
  if (exchange.sent_bytes) {
    EXPECT_EQ(*exchange.sent_bytes, 0);
  }
}

}  // namespace
}  // namespace ttbench
