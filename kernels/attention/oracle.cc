#include "kernels/attention/oracle.h"

#include <algorithm>
#include <cmath>

namespace ttbench {
namespace {

using Vector = std::vector<double>;

// y += W x for W [out, in].
void AddProduct(const double* w, const double* x, int64_t in, int64_t out, double* y) {
  // Four sums side by side: a single one would wait for each of its additions.
  for (int64_t o = 0; o < out; ++o) {
    const double* row = w + o * in;
    double sums[4] = {};
    int64_t i = 0;
    for (; i + 4 <= in; i += 4)
      for (int64_t j = 0; j < 4; ++j) sums[j] += row[i + j] * x[i + j];
    for (; i < in; ++i) sums[0] += row[i] * x[i];
    y[o] += (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
}

// For y = W x: dx += W^T dy.
void AddInputGradient(const double* w, const double* dy, int64_t in, int64_t out, double* dx) {
  for (int64_t o = 0; o < out; ++o)
    for (int64_t i = 0; i < in; ++i) dx[i] += w[o * in + i] * dy[o];
}

// Both for several vectors at once, by blocks of outputs, so that W, of which a whole decoder has
// hundreds of megabytes, is read once for all.
constexpr int64_t kBlockOutputs = 16;
void AddProducts(const Vector& w, const std::vector<const double*>& x, int64_t in, int64_t out,
                 const std::vector<double*>& y) {
  for (int64_t o = 0; o < out; o += kBlockOutputs)
    for (size_t r = 0; r < x.size(); ++r)
      AddProduct(&w[o * in], x[r], in, std::min(kBlockOutputs, out - o), y[r] + o);
}
void AddInputGradients(const Vector& w, const std::vector<const double*>& dy, int64_t in,
                       int64_t out, const std::vector<double*>& dx) {
  for (int64_t o = 0; o < out; o += kBlockOutputs)
    for (size_t r = 0; r < dy.size(); ++r)
      AddInputGradient(&w[o * in], dy[r] + o, in, std::min(kBlockOutputs, out - o), dx[r]);
}

// For y[t] = W x[t]: dW += the sum over t of dy[t] x[t]^T. Row by row of W, which stays in the
// cache meanwhile: W may have tens of millions of elements.
void AddWeightGradient(const double* x, const double* dy, int64_t steps, int64_t in, int64_t out,
                       Vector* dw) {
  for (int64_t o = 0; o < out; ++o)
    for (int64_t t = 0; t < steps; ++t)
      for (int64_t i = 0; i < in; ++i) (*dw)[o * in + i] += dy[t * out + o] * x[t * in + i];
}

// For y = W x: dx += W^T dy, dW += dy x^T.
void AddProductGradients(const Vector& w, const double* x, const double* dy, int64_t in,
                         int64_t out, double* dx, Vector* dw) {
  AddInputGradient(w.data(), dy, in, out, dx);
  AddWeightGradient(x, dy, 1, in, out, dw);
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// One row of the batch: what its forward computes, kept for its backward. All rows take each step
// together.
class RowEvaluation {
 public:
  RowEvaluation(const AttentionOracleInputs& in, int64_t row, AttentionOracleResult* result)
      : in_(in),
        row_(row),
        result_(*result),
        l_(in.source_len),
        t_(in.target_len),
        h_(in.hidden),
        context_(&in.context[row * l_ * h_]),
        first_attention_parameter_(3 * in.layers),
        hs_(t_ * h_),
        q_(t_ * h_),
        attn_(t_ * l_),
        joined_(t_ * 2 * h_) {}

  static void Forward(std::vector<RowEvaluation>* rows) {
    const AttentionOracleInputs& in = rows->front().in_;
    for (RowEvaluation& row : *rows) row.Start();
    for (int64_t t = 0; t < in.target_len; ++t) {
      for (int64_t n = 0; n < in.layers; ++n) RunLayer(rows, t, n);
      for (RowEvaluation& row : *rows) row.FinishStep(t);
    }
  }

  static void Backward(std::vector<RowEvaluation>* rows) {
    const AttentionOracleInputs& in = rows->front().in_;
    for (RowEvaluation& row : *rows) row.StartBackward();
    for (int64_t t = in.target_len - 1; t >= 0; --t) {
      for (RowEvaluation& row : *rows) row.StartStepBackward(t);
      for (int64_t n = in.layers - 1; n >= 0; --n) RunLayerBackward(rows, t, n);
    }
    for (RowEvaluation& row : *rows) row.FinishBackward();
  }

 private:
  struct Layer {
    int64_t width = 0;  // Of its input.
    Vector x;           // [T, width]
    Vector c, h;        // [T + 1, H], the initial state first.
    Vector gates;       // [T, 4, H] after their functions: in, forget, out, write.
    Vector d_sums;      // [T, 4, H], the gradients of what the functions are of.
    Vector d_x;         // [width], of the step that runs back now.
    Vector d_c, d_h;    // [H], what the step after gave to the states.
  };

  void Start() {
    if (in_.additive) {
      keys_.assign(l_ * h_, 0);
      for (int64_t l = 0; l < l_; ++l)
        AddProduct(parameter(1).data(), context_ + l * h_, h_, h_, &keys_[l * h_]);
    }
    fed_.assign((t_ + 1) * h_, 0);
    for (int64_t n = 0; n < in_.layers; ++n) {
      Layer& layer = layers_.emplace_back();
      layer.width = n == 0 ? in_.word_size + h_ : h_;
      layer.x.assign(t_ * layer.width, 0);
      for (Vector* v : {&layer.c, &layer.h}) v->assign((t_ + 1) * h_, 0);
      for (Vector* v : {&layer.gates, &layer.d_sums}) v->assign(t_ * 4 * h_, 0);
      std::copy_n(&in_.initial[1 + 2 * n][row_ * h_], h_, layer.c.begin());
      std::copy_n(&in_.initial[2 + 2 * n][row_ * h_], h_, layer.h.begin());
    }
    if (in_.layers > 0) std::copy_n(&in_.initial[0][row_ * h_], h_, fed_.begin());
  }

  void FinishStep(int64_t t) {
    const double* h =
        in_.layers == 0 ? &in_.steps[(row_ * t_ + t) * h_] : &layers_.back().h[(t + 1) * h_];
    std::copy_n(h, h_, &hs_[t * h_]);
    Attend(t);
    std::copy_n(&result_.y[(row_ * t_ + t) * h_], h_, &fed_[(t + 1) * h_]);
  }

  void StartBackward() {
    d_fed_.assign(h_, 0);
    d_keys_.assign(in_.additive ? l_ * h_ : 0, 0);
    for (Layer& layer : layers_) {
      for (Vector* v : {&layer.d_c, &layer.d_h}) v->assign(h_, 0);
    }
  }

  void StartStepBackward(int64_t t) {
    const double* dy = &in_.dy[(row_ * t_ + t) * h_];
    Vector d_y(dy, dy + h_);
    for (int64_t i = 0; i < h_; ++i) d_y[i] += d_fed_[i];
    d_above_.assign(h_, 0);
    AttendBackward(t, d_y, &d_above_, &d_keys_);
    if (in_.layers == 0) std::copy_n(d_above_.begin(), h_, &result_.dsteps[(row_ * t_ + t) * h_]);
  }

  void FinishBackward() {
    if (in_.additive) {
      for (int64_t l = 0; l < l_; ++l)
        AddProductGradients(parameter(1), context_ + l * h_, &d_keys_[l * h_], h_, h_,
                            &result_.dcontext[(row_ * l_ + l) * h_], &d_parameter(1));
    }
    if (in_.layers == 0) return;
    for (int64_t n = 0; n < in_.layers; ++n) {
      const Layer& layer = layers_[n];
      AddWeightGradient(layer.x.data(), layer.d_sums.data(), t_, layer.width, 4 * h_,
                        &result_.dparameters[3 * n]);
      AddWeightGradient(layer.h.data(), layer.d_sums.data(), t_, h_, 4 * h_,
                        &result_.dparameters[3 * n + 2]);
    }
    std::copy_n(d_fed_.begin(), h_, &result_.dinitial[0][row_ * h_]);
    for (int64_t n = 0; n < in_.layers; ++n) {
      std::copy_n(layers_[n].d_c.begin(), h_, &result_.dinitial[1 + 2 * n][row_ * h_]);
      std::copy_n(layers_[n].d_h.begin(), h_, &result_.dinitial[2 + 2 * n][row_ * h_]);
    }
  }

  const Vector& parameter(int64_t i) const {
    return in_.parameters[first_attention_parameter_ + i];
  }
  Vector& d_parameter(int64_t i) { return result_.dparameters[first_attention_parameter_ + i]; }

  static void RunLayer(std::vector<RowEvaluation>* rows, int64_t t, int64_t n) {
    std::vector<const double*> x, h;
    std::vector<double*> sums;
    for (RowEvaluation& row : *rows) {
      Layer& layer = row.layers_[n];
      row.FillInput(t, n);
      x.push_back(&layer.x[t * layer.width]);
      h.push_back(&layer.h[t * row.h_]);
      sums.push_back(&layer.gates[t * 4 * row.h_]);
      std::copy_n(row.in_.parameters[3 * n + 1].begin(), 4 * row.h_, sums.back());
    }
    const RowEvaluation& first = rows->front();
    AddProducts(first.in_.parameters[3 * n], x, first.layers_[n].width, 4 * first.h_, sums);
    AddProducts(first.in_.parameters[3 * n + 2], h, first.h_, 4 * first.h_, sums);
    for (RowEvaluation& row : *rows) row.ApplyGates(t, n);
  }

  static void RunLayerBackward(std::vector<RowEvaluation>* rows, int64_t t, int64_t n) {
    std::vector<const double*> d_sums;
    std::vector<double*> d_x, d_h;
    for (RowEvaluation& row : *rows) {
      Layer& layer = row.layers_[n];
      row.ApplyGatesBackward(t, n);
      layer.d_x.assign(layer.width, 0);
      layer.d_h.assign(row.h_, 0);
      d_sums.push_back(&layer.d_sums[t * 4 * row.h_]);
      d_x.push_back(layer.d_x.data());
      d_h.push_back(layer.d_h.data());
    }
    const RowEvaluation& first = rows->front();
    AddInputGradients(first.in_.parameters[3 * n + 2], d_sums, first.h_, 4 * first.h_, d_h);
    AddInputGradients(first.in_.parameters[3 * n], d_sums, first.layers_[n].width, 4 * first.h_,
                      d_x);
    for (RowEvaluation& row : *rows) row.PassInputGradient(t, n);
  }

  void FillInput(int64_t t, int64_t n) {
    Layer& layer = layers_[n];
    double* x = &layer.x[t * layer.width];
    if (n == 0) {
      std::copy_n(&in_.steps[(row_ * t_ + t) * in_.word_size], in_.word_size, x);
      std::copy_n(&fed_[t * h_], h_, x + in_.word_size);
    } else {
      std::copy_n(&layers_[n - 1].h[(t + 1) * h_], h_, x);
    }
  }

  // From the gates' sums, in place.
  void ApplyGates(int64_t t, int64_t n) {
    Layer& layer = layers_[n];
    double* gates = &layer.gates[t * 4 * h_];
    for (int64_t i = 0; i < 3 * h_; ++i) gates[i] = Sigmoid(gates[i]);
    for (int64_t i = 3 * h_; i < 4 * h_; ++i) gates[i] = std::tanh(gates[i]);
    for (int64_t i = 0; i < h_; ++i) {
      const double c = gates[h_ + i] * layer.c[t * h_ + i] + gates[i] * gates[3 * h_ + i];
      layer.c[(t + 1) * h_ + i] = c;
      layer.h[(t + 1) * h_ + i] = gates[2 * h_ + i] * std::tanh(c);
    }
  }

  // d_c, d_h become what step t gives to the states of step t - 1; d_h by the product that follows.
  void ApplyGatesBackward(int64_t t, int64_t n) {
    Layer& layer = layers_[n];
    const double* gates = &layer.gates[t * 4 * h_];
    double* d_sums = &layer.d_sums[t * 4 * h_];
    for (int64_t i = 0; i < h_; ++i) {
      const double in = gates[i], forget = gates[h_ + i], out = gates[2 * h_ + i],
                   write = gates[3 * h_ + i];
      const double tanh_c = std::tanh(layer.c[(t + 1) * h_ + i]);
      const double dh = d_above_[i] + layer.d_h[i];
      const double dc = layer.d_c[i] + dh * out * (1 - tanh_c * tanh_c);
      d_sums[i] = dc * write * in * (1 - in);
      d_sums[h_ + i] = dc * layer.c[t * h_ + i] * forget * (1 - forget);
      d_sums[2 * h_ + i] = dh * tanh_c * out * (1 - out);
      d_sums[3 * h_ + i] = dc * in * (1 - write * write);
      layer.d_c[i] = dc * forget;
    }
    for (int64_t i = 0; i < 4 * h_; ++i) result_.dparameters[3 * n + 1][i] += d_sums[i];
  }

  // To the layer below, or to the word and the attention that was fed.
  void PassInputGradient(int64_t t, int64_t n) {
    const Vector& d_x = layers_[n].d_x;
    if (n > 0) {
      d_above_ = d_x;
      return;
    }
    std::copy_n(d_x.begin(), in_.word_size, &result_.dsteps[(row_ * t_ + t) * in_.word_size]);
    std::copy_n(d_x.begin() + in_.word_size, h_, d_fed_.begin());
  }

  void Attend(int64_t t) {
    const double* h = &hs_[t * h_];
    double* q = &q_[t * h_];
    double* attn = &attn_[t * l_];
    AddProduct(parameter(0).data(), h, h_, h_, q);
    for (int64_t l = 0; l < l_; ++l) {
      for (int64_t i = 0; i < h_; ++i) {
        attn[l] += in_.additive ? parameter(2)[i] * std::tanh(keys_[l * h_ + i] + q[i])
                                : context_[l * h_ + i] * q[i];
      }
    }
    const double largest = *std::max_element(attn, attn + l_);
    double sum = 0;
    for (int64_t l = 0; l < l_; ++l) sum += attn[l] = std::exp(attn[l] - largest);
    double* joined = &joined_[t * 2 * h_];
    for (int64_t l = 0; l < l_; ++l) {
      attn[l] /= sum;
      for (int64_t i = 0; i < h_; ++i) joined[i] += attn[l] * context_[l * h_ + i];
    }
    std::copy_n(h, h_, joined + h_);
    double* y = &result_.y[(row_ * t_ + t) * h_];
    AddProduct(parameter(in_.additive ? 3 : 1).data(), joined, 2 * h_, h_, y);
    for (int64_t i = 0; i < h_; ++i) y[i] = std::tanh(y[i]);
  }

  void AttendBackward(int64_t t, Vector d_y, Vector* d_h, Vector* d_keys) {
    const double* y = &result_.y[(row_ * t_ + t) * h_];
    const double* q = &q_[t * h_];
    const double* attn = &attn_[t * l_];
    double* dcontext = &result_.dcontext[row_ * l_ * h_];
    for (int64_t i = 0; i < h_; ++i) d_y[i] *= 1 - y[i] * y[i];
    const int64_t w_c = in_.additive ? 3 : 1;
    Vector d_joined(2 * h_);
    AddProductGradients(parameter(w_c), &joined_[t * 2 * h_], d_y.data(), 2 * h_, h_,
                        d_joined.data(), &d_parameter(w_c));
    for (int64_t i = 0; i < h_; ++i) (*d_h)[i] += d_joined[h_ + i];
    Vector d_attn(l_);
    double mean = 0;
    for (int64_t l = 0; l < l_; ++l) {
      for (int64_t i = 0; i < h_; ++i) {
        d_attn[l] += d_joined[i] * context_[l * h_ + i];
        dcontext[l * h_ + i] += attn[l] * d_joined[i];
      }
      mean += attn[l] * d_attn[l];
    }
    Vector d_q(h_);
    for (int64_t l = 0; l < l_; ++l) {
      const double d_score = attn[l] * (d_attn[l] - mean);
      for (int64_t i = 0; i < h_; ++i) {
        if (in_.additive) {
          const double activation = std::tanh(keys_[l * h_ + i] + q[i]);
          const double d_sum = d_score * parameter(2)[i] * (1 - activation * activation);
          d_parameter(2)[i] += d_score * activation;
          (*d_keys)[l * h_ + i] += d_sum;
          d_q[i] += d_sum;
        } else {
          dcontext[l * h_ + i] += d_score * q[i];
          d_q[i] += d_score * context_[l * h_ + i];
        }
      }
    }
    AddProductGradients(parameter(0), &hs_[t * h_], d_q.data(), h_, h_, d_h->data(),
                        &d_parameter(0));
  }

  const AttentionOracleInputs& in_;
  int64_t row_;
  AttentionOracleResult& result_;
  int64_t l_, t_, h_;
  const double* context_;
  int64_t first_attention_parameter_;
  Vector hs_, q_, attn_, joined_;  // [T, H], [T, H], [T, L], [T, 2H]
  Vector keys_;                    // [L, H]
  Vector fed_;                     // [T + 1, H]
  std::vector<Layer> layers_;
  // Of the step that runs back now: what the step after gave to its y and to the keys; the gradient
  // of the top state, then of each layer's input in turn.
  Vector d_fed_, d_keys_, d_above_;
};

}  // namespace

AttentionOracleResult EvaluateAttentionOracle(const AttentionOracleInputs& inputs) {
  AttentionOracleResult result;
  result.y.assign(inputs.rows * inputs.target_len * inputs.hidden, 0);
  const bool gradients = !inputs.dy.empty();
  if (gradients) {
    result.dcontext.assign(inputs.context.size(), 0);
    result.dsteps.assign(inputs.steps.size(), 0);
    for (const Vector& v : inputs.initial) result.dinitial.emplace_back(v.size());
    for (const Vector& v : inputs.parameters) result.dparameters.emplace_back(v.size());
  }
  std::vector<RowEvaluation> rows;
  for (int64_t row = 0; row < inputs.rows; ++row) rows.emplace_back(inputs, row, &result);
  if (rows.empty()) return result;
  RowEvaluation::Forward(&rows);
  if (gradients) RowEvaluation::Backward(&rows);
  return result;
}

}  // namespace ttbench
