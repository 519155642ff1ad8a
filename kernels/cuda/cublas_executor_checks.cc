// The plan on a device, through cuBLAS, against the float64 oracle. Skipped where there is none.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "benchmarks/inputs.h"
#include "kernels/cuda/cublas_executor.h"
#include "kernels/cuda/cuda_settings.h"
#include "kernels/cuda/gemm_plan.h"
#include "kernels/oracle.h"
#include "kernels/problem.h"

namespace ttbench {
namespace {

constexpr uint64_t kSeed = 17;

void Check(cudaError_t error) {
  if (error != cudaSuccess) throw CudaFailure(cudaGetErrorString(error));
}

// Memory of the device.
class Block {
 public:
  explicit Block(int64_t bytes) { Check(cudaMalloc(&data_, static_cast<size_t>(bytes) + 1)); }
  ~Block() { cudaFree(data_); }
  Block(Block&& other) noexcept : data_(other.data_) { other.data_ = nullptr; }
  Block& operator=(Block&&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

using Values = std::vector<double>;

// bfloat16 is the upper half of a float32; the inputs are exact in it.
std::vector<char> ToBytes(const Values& values, DType dtype) {
  std::vector<char> bytes(values.size() * static_cast<size_t>(ElementBytes(dtype)));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto narrow = static_cast<float>(values[i]);
    if (dtype == DType::kFloat64) std::memcpy(&bytes[8 * i], &values[i], 8);
    if (dtype == DType::kFloat32) std::memcpy(&bytes[4 * i], &narrow, 4);
    if (dtype == DType::kBFloat16)
      std::memcpy(&bytes[2 * i], reinterpret_cast<const char*>(&narrow) + 2, 2);
  }
  return bytes;
}

Values FromBytes(const std::vector<char>& bytes, DType dtype) {
  Values values(bytes.size() / static_cast<size_t>(ElementBytes(dtype)));
  for (size_t i = 0; i < values.size(); ++i) {
    float narrow = 0;
    if (dtype == DType::kFloat32) std::memcpy(&narrow, &bytes[4 * i], 4);
    if (dtype == DType::kBFloat16)
      std::memcpy(reinterpret_cast<char*>(&narrow) + 2, &bytes[2 * i], 2);
    values[i] = narrow;
    if (dtype == DType::kFloat64) std::memcpy(&values[i], &bytes[8 * i], 8);
  }
  return values;
}

Block Upload(const Values& values, DType dtype) {
  const std::vector<char> bytes = ToBytes(values, dtype);
  Block block(static_cast<int64_t>(bytes.size()));
  Check(cudaMemcpy(block.data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
  return block;
}

// Every byte 0xff: NaN in each type.
Block Poisoned(int64_t bytes) {
  Block block(bytes);
  Check(cudaMemset(block.data(), 0xff, static_cast<size_t>(bytes)));
  return block;
}

Values ValuesOf(uint64_t stream, double scale, int64_t count) {
  const UniformValues uniform(kSeed, stream, scale);
  Values values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = uniform[i];
  return values;
}

double ErrorOf(const Values& got, const Values& right) {
  double error = 0, largest = 0;
  for (size_t i = 0; i < right.size(); ++i) {
    const double difference = std::abs(got[i] - right[i]);
    error = std::isfinite(difference) ? std::max(error, difference) : HUGE_VAL;
    largest = std::max(largest, std::abs(right[i]));
  }
  return largest > 0 ? error / largest : error;
}

// A plan with its tensors on the device.
class OnDevice {
 public:
  OnDevice(const GemmPlan& plan, const Values& x, const Values& dy,
           const std::vector<Values>& parameters)
      : plan_(plan),
        x_(Upload(x, plan.dtype)),
        dy_(Upload(dy, plan.dtype)),
        y_(Poisoned(Bytes(dy))),
        dx_(Poisoned(Bytes(x))),
        held_(Poisoned(plan.held_bytes)),
        forward_scratch_(Poisoned(plan.forward.scratch_bytes)),
        backward_scratch_(Poisoned(plan.backward.scratch_bytes)) {
    pointers_.x = x_.data();
    pointers_.dy = dy_.data();
    pointers_.y = y_.data();
    pointers_.dx = dx_.data();
    pointers_.held = held_.data();
    for (const Values& parameter : parameters) {
      parameters_.push_back(Upload(parameter, plan.dtype));
      gradients_.push_back(Poisoned(Bytes(parameter)));
      pointers_.parameters.push_back(parameters_.back().data());
      pointers_.parameter_gradients.push_back(gradients_.back().data());
      sizes_.push_back(static_cast<int64_t>(parameter.size()));
    }
    x_size_ = static_cast<int64_t>(x.size());
    y_size_ = static_cast<int64_t>(dy.size());
  }

  PlanPointers Forward() const {
    PlanPointers pointers = pointers_;
    pointers.scratch = forward_scratch_.data();
    return pointers;
  }
  PlanPointers Backward() const {
    PlanPointers pointers = pointers_;
    pointers.scratch = backward_scratch_.data();
    return pointers;
  }

  // y, then dx and each parameter's gradient if the plan trains, as bytes.
  std::vector<std::vector<char>> Results() const {
    std::vector<std::vector<char>> results = {Download(y_, y_size_)};
    if (plan_.backward.steps.empty()) return results;
    results.push_back(Download(dx_, x_size_));
    for (size_t i = 0; i < sizes_.size(); ++i)
      results.push_back(Download(gradients_[i], sizes_[i]));
    return results;
  }

  double Error(const OracleResult& right) const {
    const auto results = Results();
    double error = ErrorOf(FromBytes(results[0], plan_.dtype), right.y);
    if (results.size() == 1) return error;
    error = std::max(error, ErrorOf(FromBytes(results[1], plan_.dtype), right.dx));
    for (size_t i = 0; i < sizes_.size(); ++i)
      error = std::max(error, ErrorOf(FromBytes(results[2 + i], plan_.dtype), right.dcores[i]));
    return error;
  }

 private:
  int64_t Bytes(const Values& values) const {
    return static_cast<int64_t>(values.size()) * ElementBytes(plan_.dtype);
  }
  std::vector<char> Download(const Block& block, int64_t elements) const {
    std::vector<char> bytes(static_cast<size_t>(elements * ElementBytes(plan_.dtype)));
    Check(cudaMemcpy(bytes.data(), block.data(), bytes.size(), cudaMemcpyDeviceToHost));
    return bytes;
  }

  const GemmPlan& plan_;
  Block x_, dy_, y_, dx_, held_, forward_scratch_, backward_scratch_;
  std::vector<Block> parameters_, gradients_;
  std::vector<int64_t> sizes_;
  int64_t x_size_ = 0, y_size_ = 0;
  PlanPointers pointers_;
};

struct Layer {
  Layer(const TtShape& shape, int64_t batch) : shape(shape), batch(batch) {
    for (int64_t k = 0; k < shape.cores(); ++k)
      cores.push_back(ValuesOf(StreamOfCore(k), CoreScale(shape, k), Product(shape.CoreSizes(k))));
    x = ValuesOf(kStreamX, 1, batch * shape.in_features());
    dy = ValuesOf(kStreamDy, 1, batch * shape.out_features());
    right = EvaluateOracle(shape, cores, x, dy);
  }
  TtShape shape;
  int64_t batch;
  std::vector<Values> cores;
  Values x, dy;
  OracleResult right;
};

std::vector<Layer> Layers() {
  std::vector<Layer> layers;
  auto add = [&](const TtShape& shape, int64_t batch) { layers.emplace_back(shape, batch); };
  add(TtShape::Cube(3, 16, 8), 33);
  add(TtShape::Cube(3, 8, 8), 512);
  add(TtShape({2, 5, 41}, {10, 14, 15}, {8, 8}), 7);
  add(TtShape({2, 3, 4, 2, 3, 2}, {2, 2, 4, 2, 2, 3}, {2, 3, 4, 3, 2}), 5);
  add(TtShape({4, 3, 1, 1}, {1, 2, 4, 3}, {2, 3, 2}), 1);
  add(TtShape::Cube(2, 2, 2), kMaxBatchCount + 4000);
  std::mt19937_64 random(19);
  auto draw = [&](int64_t most) { return 1 + static_cast<int64_t>(random() % most); };
  for (int i = 0; i < 24; ++i) {
    const int64_t cores = 1 + draw(5);
    Modes in, out, ranks;
    for (int64_t k = 0; k < cores; ++k) {
      in.push_back(draw(cores < 4 ? 12 : 4));
      out.push_back(draw(cores < 4 ? 12 : 4));
      if (k > 0) ranks.push_back(draw(9));
    }
    add(TtShape(in, out, ranks), draw(19));
  }
  return layers;
}

class CublasPlanTest : public testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
      GTEST_SKIP() << "no CUDA device";
    workspace_ = std::make_unique<Block>(kDefaultCublasWorkspaceBytes);
    executor_ = std::make_unique<CublasExecutor>();
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  void TearDown() override {
    if (stream_) cudaStreamDestroy(stream_);
  }

  CublasOptions Options(bool tf32, bool lt) const {
    return {tf32, lt, workspace_->data(), kDefaultCublasWorkspaceBytes};
  }
  void Run(const GemmPlan& plan, const OnDevice& tensors, const CublasOptions& options) {
    executor_->Run(plan, plan.forward, tensors.Forward(), options, stream_);
    executor_->Run(plan, plan.backward, tensors.Backward(), options, stream_);
    Check(cudaStreamSynchronize(stream_));
  }

  std::unique_ptr<Block> workspace_;
  std::unique_ptr<CublasExecutor> executor_;
  cudaStream_t stream_ = nullptr;
};

TEST_F(CublasPlanTest, IsTheOracle) {
  for (const Layer& layer : Layers()) {
    for (const DType dtype : kDTypes) {
      for (const bool tf32 : {false, true}) {
        if (tf32 && dtype != DType::kFloat32) continue;
        const double tolerance =
            Tolerance({layer.shape, layer.batch, Phase::kTrain, dtype, 1, Device::kCuda, tf32});
        for (const PlanFor purpose : {PlanFor::kInference, PlanFor::kTraining}) {
          for (const GemmPlan& plan : {PlanSequential(layer.shape, layer.batch, dtype, purpose),
                                       PlanMerged(layer.shape, layer.batch, dtype, purpose)}) {
            for (const bool lt : {false, true}) {
              OnDevice tensors(plan, layer.x, layer.dy, layer.cores);
              Run(plan, tensors, Options(tf32, lt));
              EXPECT_LE(tensors.Error(layer.right), tolerance)
                  << plan.layer << " " << Name(dtype) << (tf32 ? " TF32" : "")
                  << (lt ? " cublasLt" : "");
            }
          }
        }
      }
    }
  }
}

TEST_F(CublasPlanTest, IsTheDenseLayer) {
  const Layer layer(TtShape({5, 7, 4}, {6, 3, 8}, {9, 8}), 37);
  const int64_t out = layer.shape.out_features(), in = layer.shape.in_features();
  const Values weight = ValuesOf(StreamOfCore(0), 0.125, out * in);
  OracleResult right;
  right.y.assign(layer.dy.size(), 0);
  right.dx.assign(layer.x.size(), 0);
  right.dcores = {Values(weight.size(), 0)};
  for (int64_t b = 0; b < layer.batch; ++b)
    for (int64_t j = 0; j < out; ++j)
      for (int64_t i = 0; i < in; ++i) {
        right.y[b * out + j] += weight[j * in + i] * layer.x[b * in + i];
        right.dx[b * in + i] += weight[j * in + i] * layer.dy[b * out + j];
        right.dcores[0][j * in + i] += layer.dy[b * out + j] * layer.x[b * in + i];
      }
  for (const DType dtype : kDTypes) {
    for (const bool lt : {false, true}) {
      const GemmPlan plan = PlanDense(out, in, layer.batch, dtype, PlanFor::kTraining);
      OnDevice tensors(plan, layer.x, layer.dy, {weight});
      Run(plan, tensors, Options(false, lt));
      EXPECT_LE(tensors.Error(right), Tolerance(layer.shape, dtype)) << Name(dtype);
    }
  }
}

TEST_F(CublasPlanTest, AGraphGivesTheSameBits) {
  for (const Layer& layer :
       {Layer(TtShape::Cube(3, 16, 8), 33), Layer(TtShape::Cube(2, 6, 3), 9)}) {
    const GemmPlan plan =
        PlanSequential(layer.shape, layer.batch, DType::kFloat32, PlanFor::kTraining);
    const CublasOptions options = Options(false, false);
    OnDevice plain(plan, layer.x, layer.dy, layer.cores),
        captured(plan, layer.x, layer.dy, layer.cores);
    Run(plan, plain, options);
    CapturedPass forward(executor_.get(), plan, plan.forward, captured.Forward(), options, stream_);
    CapturedPass backward(executor_.get(), plan, plan.backward, captured.Backward(), options,
                          stream_);
    EXPECT_FALSE(captured.Error(layer.right) <= 1) << "recording must run nothing";
    for (int i = 0; i < 3; ++i) {
      forward.Launch(stream_);
      backward.Launch(stream_);
    }
    Check(cudaStreamSynchronize(stream_));
    EXPECT_EQ(plain.Results(), captured.Results());
  }
}

// Intermediates of more than 2^31 elements, whose last rows lie beyond 32-bit offsets.
TEST_F(CublasPlanTest, ReachesPastTwoToThe31Elements) {
  const TtShape shape = TtShape::Cube(3, 16, 8);
  const int64_t batch = 66000;
  const GemmPlan plan = PlanSequential(shape, batch, DType::kFloat32, PlanFor::kInference);
  const int64_t row = shape.in_features();
  const int64_t bytes = plan.forward.scratch_bytes + 2 * batch * row * 4;
  size_t free_bytes = 0, total_bytes = 0;
  Check(cudaMemGetInfo(&free_bytes, &total_bytes));
  if (static_cast<int64_t>(free_bytes) < bytes + (int64_t{1} << 30))
    GTEST_SKIP() << "takes " << bytes << " bytes of the device";
  const Layer layer(shape, 5);
  const Block x = Poisoned(batch * row * 4), y = Poisoned(batch * row * 4);
  const Block scratch = Poisoned(plan.forward.scratch_bytes);
  // The layer's rows at the end; the rest is NaN, which must not spread.
  const std::vector<char> rows = ToBytes(layer.x, DType::kFloat32);
  const int64_t first = (batch - layer.batch) * row * 4;
  Check(cudaMemcpy(static_cast<char*>(x.data()) + first, rows.data(), rows.size(),
                   cudaMemcpyHostToDevice));
  std::vector<Block> cores;
  PlanPointers pointers;
  for (const Values& core : layer.cores) {
    cores.push_back(Upload(core, DType::kFloat32));
    pointers.parameters.push_back(cores.back().data());
  }
  pointers.x = x.data();
  pointers.y = y.data();
  pointers.scratch = scratch.data();
  executor_->Run(plan, plan.forward, pointers, Options(false, false), stream_);
  Check(cudaStreamSynchronize(stream_));
  std::vector<char> got(rows.size());
  Check(cudaMemcpy(got.data(), static_cast<const char*>(y.data()) + first, got.size(),
                   cudaMemcpyDeviceToHost));
  EXPECT_LE(ErrorOf(FromBytes(got, DType::kFloat32), layer.right.y),
            Tolerance(shape, DType::kFloat32));
}

TEST_F(CublasPlanTest, WithoutWorkspaceToo) {
  const Layer layer(TtShape::Cube(3, 8, 4), 64);
  const GemmPlan plan =
      PlanSequential(layer.shape, layer.batch, DType::kFloat32, PlanFor::kTraining);
  for (const bool lt : {false, true}) {
    OnDevice tensors(plan, layer.x, layer.dy, layer.cores);
    Run(plan, tensors, {false, lt, nullptr, 0});
    EXPECT_LE(tensors.Error(layer.right),
              Tolerance({layer.shape, layer.batch, Phase::kTrain, DType::kFloat32}));
  }
}

}  // namespace
}  // namespace ttbench
