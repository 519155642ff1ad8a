#include "networks/transformer_xl/transformer_xl.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/variant.h"

namespace ttbench {
namespace {

class TransformerXlTest : public testing::Test {
 protected:
  TransformerXlTest() {
    at::set_num_threads(1);
    torch::manual_seed(3);
  }
};

// Every size another number.
TransformerXlOptions Small() {
  TransformerXlOptions options;
  options.layers = 2;
  options.d_model = 12;
  options.heads = 3;
  options.d_head = 5;
  options.d_inner = 24;
  options.target_len = 6;
  options.memory_len = 4;
  options.vocabulary = 50;
  options.cutoffs = {10, 18, 40};
  return options;
}

TransformerXlOptions SmallTt(const std::string& variant) {
  TransformerXlOptions options = Small();
  options.feed_forward_variant = variant;
  options.up = TtShape({2, 3, 2}, {2, 4, 3}, {3, 2});
  options.down = TtShape({2, 3, 4}, {3, 2, 2}, {2, 4});
  return options;
}

at::Tensor Words(int64_t length, int64_t batch) {
  return at::randint(50, {length, batch}, at::kLong);
}

// Makes biases and norms differ from their initial zeros and ones.
void Scatter(TransformerXl* model) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : (*model)->parameters()) {
    parameter.add_(at::empty_like(parameter).normal_(0, 0.3));
  }
}

double RelativeError(const at::Tensor& got, const at::Tensor& want) {
  return ((got - want).abs().max() / want.abs().max()).item<double>();
}

// Float64 against float64, a few hundred terms summed in different orders.
constexpr double kFloat64Error = 1e-12;

void ExpectSame(const at::Tensor& got, const at::Tensor& want, const std::string& what) {
  ASSERT_TRUE(got.defined() && want.defined()) << what;
  ASSERT_EQ(got.sizes(), want.sizes()) << what;
  EXPECT_LE(RelativeError(got, want), kFloat64Error) << what;
}

// The network in plain loops over one sequence, from the paper's formulas: no batch, no matrix
// products, no shifting of scores, the softmax over all words by definition.
class SlowNetwork {
 public:
  using Vector = std::vector<double>;
  using Vectors = std::vector<Vector>;

  explicit SlowNetwork(const TransformerXl& model) : model_(model), options_(model->options()) {
    const at::NoGradGuard no_grad;
    for (const auto& parameter : model->named_parameters())
      parameters_[parameter.key()] = ToVector(parameter.value());
    for (int64_t l = 0; l < options_.layers; ++l) {
      if (options_.is_dense()) continue;
      const std::string layer = "layer" + std::to_string(l + 1);
      parameters_[layer + ".up.weight"] = ToVector(model->up(l)->to_dense());
      parameters_[layer + ".down.weight"] = ToVector(model->down(l)->to_dense());
    }
  }

  // Losses of one sequence; memory[l] are the vectors that layer l remembers.
  Vector Losses(const std::vector<int64_t>& tokens, const std::vector<int64_t>& targets,
                const std::vector<Vectors>& memory) const {
    Vectors hidden;
    for (const int64_t token : tokens) {
      Vector x = Row("embedding", token, options_.d_model);
      for (double& value : x) value *= std::sqrt(static_cast<double>(options_.d_model));
      hidden.push_back(x);
    }
    for (int64_t l = 0; l < options_.layers; ++l) {
      const std::string layer = "layer" + std::to_string(l + 1) + ".";
      Vectors context = memory.empty() ? Vectors() : memory[l];
      const int64_t remembered = static_cast<int64_t>(context.size());
      context.insert(context.end(), hidden.begin(), hidden.end());
      Vectors next;
      for (size_t i = 0; i < hidden.size(); ++i) {
        const Vector attended =
            Attend(layer, hidden[i], context, remembered + static_cast<int64_t>(i));
        const Vector a = Norm(layer + "attention_norm", Sum(hidden[i], attended));
        Vector inner = Affine(layer + "up", a, options_.d_inner);
        for (double& value : inner) value = std::max(value, 0.0);
        next.push_back(Norm(layer + "feed_forward_norm",
                            Sum(a, Affine(layer + "down", inner, options_.d_model))));
      }
      hidden = next;
    }
    Vector losses;
    for (size_t i = 0; i < hidden.size(); ++i)
      losses.push_back(-std::log(Probability(hidden[i], targets[i])));
    return losses;
  }

  // Of one word, by the softmax of the head and, for rarer words, of the cluster.
  double Probability(const Vector& hidden, int64_t word) const {
    const auto& cutoffs = options_.cutoffs;
    const int64_t clusters = options_.clusters();
    Vector head;
    for (int64_t w = 0; w < options_.PartEnd(0); ++w) head.push_back(Logit(hidden, w));
    for (int64_t c = 0; c < clusters; ++c) {
      head.push_back(Dot(hidden, Row("cluster_weight", c, options_.d_model)) +
                     parameters_.at("cluster_bias")[c]);
    }
    if (word < options_.PartEnd(0)) return Share(head, word);
    int64_t c = 0;
    while (c + 1 < clusters && word >= cutoffs[c + 1]) ++c;
    Vector tail;
    for (int64_t w = options_.PartBegin(c + 1); w < options_.PartEnd(c + 1); ++w)
      tail.push_back(Logit(hidden, w));
    // The head has its clusters' classes in reverse.
    return Share(head, options_.PartEnd(0) + clusters - 1 - c) *
           Share(tail, word - options_.PartBegin(c + 1));
  }

 private:
  static Vector ToVector(const at::Tensor& tensor) {
    const at::Tensor flat = tensor.detach().to(at::kDouble).contiguous();
    const double* data = flat.const_data_ptr<double>();
    return {data, data + flat.numel()};
  }
  Vector Row(const std::string& name, int64_t row, int64_t width) const {
    const auto begin = parameters_.at(name).begin() + row * width;
    return {begin, begin + width};
  }
  static double Dot(const Vector& a, const Vector& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  }
  static Vector Sum(Vector a, const Vector& b) {
    for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
  }
  static double Share(const Vector& logits, int64_t i) {
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit);
    return std::exp(logits[i]) / sum;
  }
  double Logit(const Vector& hidden, int64_t word) const {
    return Dot(hidden, Row("embedding", word, options_.d_model)) +
           parameters_.at("word_bias")[word];
  }
  Vector Product(const std::string& name, const Vector& x, int64_t rows) const {
    Vector y;
    for (int64_t row = 0; row < rows; ++row)
      y.push_back(Dot(x, Row(name, row, static_cast<int64_t>(x.size()))));
    return y;
  }
  Vector Affine(const std::string& name, const Vector& x, int64_t rows) const {
    return Sum(Product(name + ".weight", x, rows), parameters_.at(name + ".bias"));
  }
  Vector Norm(const std::string& name, const Vector& x) const {
    double mean = 0, variance = 0;
    for (const double value : x) mean += value / static_cast<double>(x.size());
    for (const double value : x)
      variance += (value - mean) * (value - mean) / static_cast<double>(x.size());
    Vector y;
    for (size_t i = 0; i < x.size(); ++i) {
      y.push_back((x[i] - mean) / std::sqrt(variance + 1e-5) * parameters_.at(name + "_weight")[i] +
                  parameters_.at(name + "_bias")[i]);
    }
    return y;
  }
  // Of the token at `place` of the context, which sees itself and all before it:
  //   sum over j of softmax_j(((q + u) . k_j + (q + v) . r_{place - j}) / sqrt(d)) value_j
  Vector Attend(const std::string& layer, const Vector& hidden, const Vectors& context,
                int64_t place) const {
    const int64_t heads = options_.heads, width = options_.d_head, all = heads * width;
    const Vector query = Product(layer + "query", hidden, all);
    Vector joined(all, 0.0);
    for (int64_t head = 0; head < heads; ++head) {
      Vector scores;
      for (int64_t j = 0; j <= place; ++j) {
        const Vector key = Product(layer + "key", context[j], all);
        const Vector position = Product(layer + "position", Code(place - j), all);
        double score = 0;
        for (int64_t i = head * width; i < (head + 1) * width; ++i) {
          score += (query[i] + parameters_.at("content_bias")[i]) * key[i] +
                   (query[i] + parameters_.at("position_bias")[i]) * position[i];
        }
        scores.push_back(score / std::sqrt(static_cast<double>(width)));
      }
      for (int64_t j = 0; j <= place; ++j) {
        const Vector value = Product(layer + "value", context[j], all);
        for (int64_t i = head * width; i < (head + 1) * width; ++i)
          joined[i] += Share(scores, j) * value[i];
      }
    }
    return Product(layer + "output", joined, options_.d_model);
  }
  Vector Code(int64_t distance) const {
    const int64_t half = options_.d_model / 2;
    Vector code(options_.d_model);
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(distance) /
                           std::pow(10000.0, static_cast<double>(i) / static_cast<double>(half));
      code[i] = std::sin(angle);
      code[half + i] = std::cos(angle);
    }
    return code;
  }

  const TransformerXl& model_;
  TransformerXlOptions options_;
  std::map<std::string, Vector> parameters_;
};

std::vector<int64_t> Column(const at::Tensor& words, int64_t b) {
  std::vector<int64_t> column;
  for (int64_t t = 0; t < words.size(0); ++t) column.push_back(words[t][b].item<int64_t>());
  return column;
}

std::vector<SlowNetwork::Vectors> MemoryOf(const std::vector<at::Tensor>& memory, int64_t b) {
  std::vector<SlowNetwork::Vectors> layers;
  for (const at::Tensor& part : memory) {
    auto& vectors = layers.emplace_back();
    for (int64_t t = 0; t < part.size(0); ++t) {
      auto& vector = vectors.emplace_back();
      for (int64_t i = 0; i < part.size(2); ++i) vector.push_back(part[t][b][i].item<double>());
    }
  }
  return layers;
}

void ExpectSlowLosses(const TransformerXl& model, const at::Tensor& loss, const at::Tensor& tokens,
                      const at::Tensor& targets, const std::vector<at::Tensor>& memory) {
  const SlowNetwork slow(model);
  for (int64_t b = 0; b < tokens.size(1); ++b) {
    const SlowNetwork::Vector losses =
        slow.Losses(Column(tokens, b), Column(targets, b), MemoryOf(memory, b));
    for (size_t t = 0; t < losses.size(); ++t)
      EXPECT_NEAR(loss[t][b].item<double>(), losses[t], 1e-11) << "token " << t << " of " << b;
  }
}

TEST_F(TransformerXlTest, ParametersAreThoseOfTheOptions) {
  for (const TransformerXlOptions& options : {Small(), SmallTt("sequential")}) {
    const TransformerXl model(options);
    const std::vector<ParameterSizes> expected = ParametersOf(options);
    const auto parameters = model->named_parameters();
    ASSERT_EQ(parameters.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(parameters[i].key(), expected[i].name);
      EXPECT_EQ(parameters[i].value().sizes(), at::IntArrayRef(expected[i].sizes));
      EXPECT_TRUE(parameters[i].value().requires_grad()) << expected[i].name;
    }
  }
}

// Attention, memory, positions, norms and softmax, over segments of different lengths: the memory
// is empty, then shorter than memory_len, then cut to it.
TEST_F(TransformerXlTest, LossesAreThoseOfTheFormulas) {
  for (const TransformerXlOptions& options : {Small(), SmallTt("sequential")}) {
    TransformerXl model(options, at::kDouble);
    Scatter(&model);
    std::vector<at::Tensor> memory;
    for (const int64_t length : {2, 1, 6, 5}) {
      SCOPED_TRACE(length);
      const at::Tensor tokens = Words(length, 3), targets = Words(length, 3);
      const auto output = model->forward(tokens, targets, memory);
      ASSERT_EQ(output.loss.sizes(), tokens.sizes());
      ExpectSlowLosses(model, output.loss, tokens, targets, memory);
      memory = output.memory;
    }
    ASSERT_EQ(memory.size(), 2u);
    EXPECT_EQ(memory[0].sizes(), at::IntArrayRef({4, 3, 12}));
    EXPECT_FALSE(memory[0].requires_grad());
  }
}

// What the first layer remembers are the scaled embeddings of the last tokens, oldest first.
TEST_F(TransformerXlTest, RemembersTheLastTokens) {
  TransformerXl model(Small(), at::kDouble);
  const at::Tensor tokens = Words(3, 2);
  const auto first = model->forward(tokens, tokens);
  const at::Tensor more = Words(2, 2);
  const auto second = model->forward(more, more, first.memory);
  ASSERT_EQ(first.memory[0].size(0), 3);
  ASSERT_EQ(second.memory[0].size(0), 4);
  const at::Tensor embedding = model->named_parameters()["embedding"].detach() * std::sqrt(12.0);
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t place = 0; place < 4; ++place) {
      const int64_t word = (place < 2 ? tokens[place + 1][b] : more[place - 2][b]).item<int64_t>();
      ExpectSame(second.memory[0][place][b], embedding[word], "a remembered token");
    }
  }
}

TEST_F(TransformerXlTest, ProbabilitiesOfAllWordsSumToOne) {
  TransformerXlOptions options = Small();
  options.layers = 1;
  TransformerXl model(options, at::kDouble);
  Scatter(&model);
  const at::NoGradGuard no_grad;
  double sum = 0;
  for (int64_t word = 0; word < 50; ++word) {
    const at::Tensor target = at::empty({1, 1}, at::kLong).fill_(word);
    sum += std::exp(-model->forward(at::zeros({1, 1}, at::kLong), target).loss.item<double>());
  }
  EXPECT_NEAR(sum, 1, 1e-12);
}

TEST_F(TransformerXlTest, WithoutCutoffsThereIsOneSoftmax) {
  TransformerXlOptions options = Small();
  options.cutoffs.clear();
  options.memory_len = 0;
  TransformerXl model(options, at::kDouble);
  Scatter(&model);
  const at::Tensor tokens = Words(4, 2), targets = Words(4, 2);
  const auto output = model->forward(tokens, targets);
  EXPECT_TRUE(output.memory.empty());
  ExpectSlowLosses(model, output.loss, tokens, targets, {});
}

// Along a random direction of all parameters: autograd's derivative of the summed loss, and a
// central difference of the losses by the formulas.
TEST_F(TransformerXlTest, GradientsAreTheDerivativesOfTheFormulas) {
  TransformerXl model(Small(), at::kDouble);
  Scatter(&model);
  const at::Tensor tokens = Words(6, 1), targets = Words(6, 1);
  const std::vector<at::Tensor> memory = model->forward(Words(4, 1), Words(4, 1)).memory;
  model->forward(tokens, targets, memory).loss.sum().backward();
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> direction;
  double derivative = 0;
  for (const at::Tensor& parameter : model->parameters()) {
    ASSERT_TRUE(parameter.grad().defined());
    direction.push_back(at::empty_like(parameter).normal_(0, 1));
    derivative += (parameter.grad() * direction.back()).sum().item<double>();
  }
  constexpr double kStep = 1e-6;
  auto loss_at = [&](double step) {
    const std::vector<at::Tensor> parameters = model->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) parameters[i].add_(direction[i], step);
    double sum = 0;
    for (const double loss :
         SlowNetwork(model).Losses(Column(tokens, 0), Column(targets, 0), MemoryOf(memory, 0)))
      sum += loss;
    for (size_t i = 0; i < parameters.size(); ++i) parameters[i].sub_(direction[i], step);
    return sum;
  };
  const double difference = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
  EXPECT_NEAR(derivative, difference, 1e-5 * std::abs(derivative));
  EXPECT_GT(std::abs(derivative), 1e-3);
}

struct Trained {
  at::Tensor loss;
  std::map<std::string, at::Tensor> gradients;
};

// Two segments; the loss of each token has a weight of its own.
Trained Train(TransformerXl* model, const at::Tensor& tokens, const at::Tensor& targets,
              const at::Tensor& loss_weights) {
  const std::vector<at::Tensor> memory = (*model)->forward(targets, tokens).memory;
  Trained trained;
  trained.loss = (*model)->forward(tokens, targets, memory).loss;
  torch::autograd::backward({trained.loss}, {loss_weights});
  for (const auto& parameter : (*model)->named_parameters())
    trained.gradients[parameter.key()] = parameter.value().grad();
  return trained;
}

void CopyParameters(const TransformerXl& from, const TransformerXl& to) {
  const at::NoGradGuard no_grad;
  auto targets = to->named_parameters();
  for (const auto& parameter : from->named_parameters()) {
    if (at::Tensor* target = targets.find(parameter.key())) target->copy_(parameter.value());
  }
  for (int64_t l = 0; l < from->options().layers; ++l) {
    const std::string layer = "layer" + std::to_string(l + 1);
    if (!to->options().is_dense()) continue;
    targets[layer + ".up.weight"].copy_(from->up(l)->to_dense());
    targets[layer + ".down.weight"].copy_(from->down(l)->to_dense());
  }
}

TEST_F(TransformerXlTest, ValuesAndGradientsAreTheSameWhateverTheVariant) {
  TransformerXl first(SmallTt("sequential"), at::kDouble);
  Scatter(&first);
  const at::Tensor tokens = Words(5, 3), targets = Words(5, 3);
  const at::Tensor loss_weights = at::empty({5, 3}, at::kDouble).normal_();
  const Trained expected = Train(&first, tokens, targets, loss_weights);

  TransformerXl dense(Small(), at::kDouble);
  CopyParameters(first, dense);
  const Trained by_dense = Train(&dense, tokens, targets, loss_weights);
  ExpectSame(by_dense.loss, expected.loss, "loss of dense");
  int compared = 0;
  for (const auto& [name, gradient] : by_dense.gradients) {
    if (expected.gradients.count(name) == 0) continue;
    ExpectSame(gradient, expected.gradients.at(name), "dense: " + name);
    ++compared;
  }
  // All but the two matrices of each layer.
  EXPECT_EQ(compared, static_cast<int>(by_dense.gradients.size()) - 4);

  std::vector<std::string> refused;
  for (const auto& variant : LinearVariants()) {
    if (variant->is_dense() || !variant->RunsOn(Device::kCpu)) continue;
    SCOPED_TRACE(variant->name());
    TransformerXl model(SmallTt(variant->name()), at::kDouble);
    CopyParameters(first, model);
    Trained trained;
    try {
      trained = Train(&model, tokens, targets, loss_weights);
    } catch (const std::invalid_argument&) {
      refused.push_back(variant->name());
      continue;
    }
    ExpectSame(trained.loss, expected.loss, "loss");
    for (const auto& [name, gradient] : trained.gradients)
      ExpectSame(gradient, expected.gradients.at(name), name);
  }
  EXPECT_EQ(refused, std::vector<std::string>());
}

// With the same seed all but the position-wise matrices start alike, and the cores do.
TEST_F(TransformerXlTest, InitialValuesDoNotDependOnTheVariant) {
  auto make = [](const TransformerXlOptions& options) {
    torch::manual_seed(11);
    return TransformerXl(options);
  };
  const TransformerXl dense = make(Small());
  const TransformerXl sequential = make(SmallTt("sequential"));
  const TransformerXl fused = make(SmallTt("fused"));
  auto others = sequential->named_parameters();
  for (const auto& parameter : fused->named_parameters())
    EXPECT_TRUE(parameter.value().equal(others[parameter.key()])) << parameter.key();
  int compared = 0;
  for (const auto& parameter : dense->named_parameters()) {
    const at::Tensor* other = others.find(parameter.key());
    if (!other) continue;
    EXPECT_TRUE(parameter.value().equal(*other)) << parameter.key();
    ++compared;
  }
  EXPECT_EQ(compared, static_cast<int>(dense->parameters().size()) - 4);
  EXPECT_FALSE(
      dense->named_parameters()["layer1.query"].equal(dense->named_parameters()["layer2.query"]));
}

template <typename Call>
std::string Refusal(const Call& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST_F(TransformerXlTest, RefusesInputsThatDoNotFit) {
  TransformerXl model(Small());
  const at::Tensor words = Words(3, 2);
  EXPECT_EQ(Refusal([&] { model->forward(words, words); }), "");
  EXPECT_EQ(Refusal([&] { model->forward(Words(7, 2), Words(7, 2)); }),
            "Transformer-XL: tokens are [7, 2]; they must be [T, B], T at most 6");
  EXPECT_NE(Refusal([&] { model->forward(words, Words(3, 1)); }), "");
  EXPECT_EQ(
      Refusal([&] { model->forward(words, words + 48); }).substr(0, 35),
      "Transformer-XL: targets go from " + std::to_string(words.min().item<int64_t>() + 48) + " ");
  EXPECT_NE(Refusal([&] { model->forward(words.to(at::kInt), words); }), "");
  const auto memory = model->forward(words, words).memory;
  EXPECT_NE(Refusal([&] { model->forward(words, words, {memory[0]}); }), "");
  EXPECT_NE(Refusal([&] { model->forward(Words(3, 1), Words(3, 1), memory); }), "");
}

}  // namespace
}  // namespace ttbench
