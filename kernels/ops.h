// LibTorch's operators and those of the cost model's tape behind one name: a program written on
// them runs on at::Tensor, or on the tape as its own cost model. Names are those of the buffers
// that an operator allocates. View() is of tensors that can be viewed so.
#pragma once

#include <ATen/ops/add.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>

#include <vector>

#include "kernels/cost/tape.h"

namespace ttbench {

struct RealOps {
  using Tensor = at::Tensor;
  Tensor View(const Tensor& a, const cost::Sizes& sizes) const { return a.view(sizes); }
  Tensor Reshape(const Tensor& a, const cost::Sizes& sizes, const char*) const {
    return a.reshape(sizes);
  }
  Tensor Permute(const Tensor& a, const cost::Sizes& order) const { return a.permute(order); }
  Tensor Detach(const Tensor& a) const { return a.detach(); }
  Tensor Mm(const Tensor& a, const Tensor& b, const char*) const { return at::mm(a, b); }
  Tensor Bmm(const Tensor& a, const Tensor& b, const char*) const { return at::bmm(a, b); }
  Tensor Linear(const Tensor& x, const Tensor& w, const Tensor& bias, const char*) const {
    return at::linear(x, w, bias);
  }
  Tensor Add(const Tensor& a, const Tensor& b, const char*) const { return at::add(a, b); }
  Tensor Mul(const Tensor& a, const Tensor& b, const char*) const { return at::mul(a, b); }
  Tensor AddInPlace(Tensor a, const Tensor& b) const { return a.add_(b); }
  Tensor ScaleInPlace(Tensor a, double factor) const { return a.mul_(factor); }
  Tensor Negate(const Tensor& a, const char*) const { return at::neg(a); }
  Tensor Tanh(const Tensor& a, const char*) const { return at::tanh(a); }
  Tensor Sigmoid(const Tensor& a, const char*) const { return at::sigmoid(a); }
  Tensor Relu(const Tensor& a, const char*) const { return at::relu(a); }
  Tensor Softmax(const Tensor& a, const char*) const { return at::softmax(a, -1); }
  Tensor LogSoftmax(const Tensor& a, const char*) const { return at::log_softmax(a, -1); }
  Tensor LayerNorm(const Tensor& a, const Tensor& weight, const Tensor& bias, const char*) const {
    return at::layer_norm(a, weight.sizes(), weight, bias);
  }
  Tensor Cat(const Tensor& a, const Tensor& b, const char*) const { return at::cat({a, b}, -1); }
  Tensor CatRows(const Tensor& a, const Tensor& b, const char*) const { return at::cat({a, b}); }
  std::vector<Tensor> Chunk(const Tensor& a, int64_t parts) const { return a.chunk(parts, -1); }
  std::vector<Tensor> SplitRows(const Tensor& a, const cost::Sizes& rows) const {
    return a.split_with_sizes(rows);
  }
  // Elements begin.. of a dimension.
  Tensor From(const Tensor& a, int64_t dim, int64_t begin) const { return a.slice(dim, begin); }
  Tensor PadFront(const Tensor& a, const char*) const { return at::constant_pad_nd(a, {1, 0}); }
  Tensor Embedding(const Tensor& weight, const Tensor& rows, const char*) const {
    return at::embedding(weight, rows);
  }
  Tensor SelectRows(const Tensor& a, const Tensor& rows, const char*) const {
    return at::index_select(a, 0, rows);
  }
  Tensor AddToRows(const Tensor& a, const Tensor& rows, const Tensor& b, const char*) const {
    return at::index_add(a, 0, rows, b);
  }
  // One element of each row, [n, 1], by index [n, 1].
  Tensor Gather(const Tensor& a, const Tensor& index, const char*) const {
    return at::gather(a, 1, index);
  }
};

struct TracedOps {
  using Tensor = cost::Tensor;
  cost::Tape* tape;
  Tensor View(const Tensor& a, const cost::Sizes& sizes) const {
    return tape->Reshape(a, sizes, "");
  }
  Tensor Reshape(const Tensor& a, const cost::Sizes& sizes, const char* name) const {
    return tape->Reshape(a, sizes, name);
  }
  Tensor Permute(const Tensor& a, const cost::Sizes& order) const {
    return tape->Permute(a, order);
  }
  Tensor Detach(const Tensor& a) const { return a.Detach(); }
  Tensor Mm(const Tensor& a, const Tensor& b, const char* name) const {
    return tape->Mm(a, b, name);
  }
  Tensor Bmm(const Tensor& a, const Tensor& b, const char* name) const {
    return tape->Bmm(a, b, name);
  }
  Tensor Linear(const Tensor& x, const Tensor& w, const Tensor& bias, const char* name) const {
    return tape->Addmm(bias, x, tape->Transpose(w), name);
  }
  Tensor Add(const Tensor& a, const Tensor& b, const char* name) const {
    return tape->Add(a, b, name);
  }
  Tensor Mul(const Tensor& a, const Tensor& b, const char* name) const {
    return tape->Mul(a, b, name);
  }
  Tensor AddInPlace(const Tensor& a, const Tensor& b) const { return tape->AddInPlace(a, b); }
  Tensor ScaleInPlace(const Tensor& a, double) const { return tape->ScaleInPlace(a); }
  Tensor Negate(const Tensor& a, const char* name) const { return tape->Negate(a, name); }
  Tensor Tanh(const Tensor& a, const char* name) const { return tape->Tanh(a, name); }
  Tensor Relu(const Tensor& a, const char* name) const { return tape->Relu(a, name); }
  Tensor Sigmoid(const Tensor& a, const char* name) const { return tape->Sigmoid(a, name); }
  Tensor Softmax(const Tensor& a, const char* name) const { return tape->Softmax(a, name); }
  Tensor LogSoftmax(const Tensor& a, const char* name) const { return tape->LogSoftmax(a, name); }
  Tensor LayerNorm(const Tensor& a, const Tensor& weight, const Tensor& bias,
                   const char* name) const {
    return tape->LayerNorm(a, weight, bias, name);
  }
  Tensor Cat(const Tensor& a, const Tensor& b, const char* name) const {
    return tape->Cat(a, b, name);
  }
  Tensor CatRows(const Tensor& a, const Tensor& b, const char* name) const {
    return tape->CatRows(a, b, name);
  }
  std::vector<Tensor> Chunk(const Tensor& a, int64_t parts) const { return tape->Chunk(a, parts); }
  std::vector<Tensor> SplitRows(const Tensor& a, const cost::Sizes& rows) const {
    return tape->SplitRows(a, rows);
  }
  Tensor From(const Tensor& a, int64_t dim, int64_t begin) const {
    return tape->From(a, dim, begin);
  }
  Tensor PadFront(const Tensor& a, const char* name) const { return tape->PadFront(a, name); }
  Tensor Embedding(const Tensor& weight, const Tensor& rows, const char* name) const {
    return tape->Embedding(weight, rows, name);
  }
  Tensor SelectRows(const Tensor& a, const Tensor& rows, const char* name) const {
    return tape->SelectRows(a, rows, name);
  }
  Tensor AddToRows(const Tensor& a, const Tensor& rows, const Tensor& b, const char* name) const {
    return tape->AddToRows(a, rows, b, name);
  }
  Tensor Gather(const Tensor& a, const Tensor& index, const char* name) const {
    return tape->Gather(a, index, name);
  }
};

}  // namespace ttbench
