#include "networks/minilm/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace ttbench {
namespace {

std::string Path() { return testing::TempDir() + "/tensors.safetensors"; }

// The eight bytes of a length, least first.
std::string Length(uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> 8 * i & 0xff);
  return bytes;
}

NamedTensors Read(const std::string& bytes) {
  std::ofstream(Path(), std::ios::binary) << bytes;
  return ReadSafetensors(Path());
}

NamedTensors ReadFile(const std::string& header, const std::string& data) {
  return Read(Length(header.size()) + header + data);
}

template <typename Value>
std::string Bytes(const std::vector<Value>& values) {
  std::string bytes(values.size() * sizeof(Value), ' ');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::string ErrorOf(const std::string& header, const std::string& data) {
  try {
    ReadFile(header, data);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(SafetensorsTest, ReadsShapesAndValues) {
  const NamedTensors tensors =
      ReadFile(R"({"__metadata__":{"format":"pt"},)"
               R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[16,40]},)"
               R"("b":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
               R"("c":{"dtype":"BF16","shape":[1],"data_offsets":[40,42]},)"
               R"("d":{"dtype":"F64","shape":[],"data_offsets":[42,50]}}  )",
               Bytes<int64_t>({-7, 1LL << 40}) + Bytes<float>({1, 2, 3, 4, 5, 6.5}) + "xx" +
                   Bytes<double>({0.1}));
  ASSERT_EQ(tensors.size(), 3u);
  const at::Tensor& a = tensors.at("a");
  ASSERT_EQ(a.sizes(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(a[0][1].item<float>(), 2);
  EXPECT_EQ(a[1][2].item<float>(), 6.5);
  EXPECT_EQ(tensors.at("b")[0].item<int64_t>(), -7);
  EXPECT_EQ(tensors.at("b")[1].item<int64_t>(), 1LL << 40);
  EXPECT_EQ(tensors.at("d").dim(), 0);
  EXPECT_EQ(tensors.at("d").item<double>(), 0.1);
}

TEST(SafetensorsTest, SaysWhatIsWrong) {
  EXPECT_THROW(ReadSafetensors("/nowhere/model.safetensors"), std::runtime_error);
  EXPECT_THROW(Read(""), std::runtime_error);
  EXPECT_THROW(Read("short"), std::runtime_error);
  EXPECT_THROW(Read(Length(~0ull) + "{}"), std::runtime_error);
  EXPECT_NE(ErrorOf("{", "").find("is no safetensors file"), std::string::npos);
  auto entry = [](const std::string& shape, const std::string& offsets) {
    return R"({"weight":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  const std::string four = Bytes<float>({1});
  EXPECT_EQ(ErrorOf(entry("[1]", "[0,4]"), four), "");
  EXPECT_EQ(ErrorOf(entry("[1]", "[0,8]"), four),
            Path() + " is no safetensors file, at weight: its data is not in the file");
  EXPECT_EQ(ErrorOf(entry("[2]", "[0,4]"), four),
            Path() + " is no safetensors file, at weight: its shape and its data differ in size");
  EXPECT_EQ(ErrorOf(entry("[-1]", "[0,4]"), four),
            Path() + " is no safetensors file, at weight: a length is negative");
}

}  // namespace
}  // namespace ttbench
