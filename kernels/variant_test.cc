#include "kernels/variant.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

namespace ttbench {
namespace {

class Named : public LinearVariant {
 public:
  explicit Named(std::string name) : name_(std::move(name)) {}
  std::string name() const override { return name_; }
  std::string Algorithm(const LinearProblem&) const override { return "none"; }
  at::Tensor Forward(const TtShape&, const at::Tensor& x, at::TensorList) const override {
    return x;
  }
  cost::Tensor Trace(cost::Tape&, const TtShape&, const cost::Tensor& x,
                     const std::vector<cost::Tensor>&) const override {
    return x;
  }

 private:
  std::string name_;
};

const RegisterLinearVariant kMine(std::make_unique<Named>("mine"));

TEST(RegistryTest, FindsByName) {
  ASSERT_NE(FindLinearVariant("mine"), nullptr);
  EXPECT_EQ(FindLinearVariant("mine")->name(), "mine");
  EXPECT_EQ(FindLinearVariant("yours"), nullptr);
}

TEST(RegistryDeathTest, ASecondOfTheSameNameEndsTheProgramWithASentence) {
  EXPECT_DEATH(RegisterLinearVariant(std::make_unique<Named>("mine")),
               "two linear variants are named 'mine'; rename one of them");
}

}  // namespace
}  // namespace ttbench
