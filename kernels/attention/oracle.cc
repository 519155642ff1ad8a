#include "kernels/attention/oracle.h"

#include <algorithm>
#include <cmath>

namespace ttbench {
namespace {

using Vector = std::vector<double>;

// y += W x for W [out, in].
void AddProduct(const Vector& w, const double* x, int64_t in, int64_t out, double* y) {
  // Four sums side by side: a single one would wait for each of its additions.
  for (int64_t o = 0; o < out; ++o) {
    const double* row = &w[o * in];
    double sums[4] = {};
    int64_t i = 0;
    for (; i + 4 <= in; i += 4)
      for (int64_t j = 0; j < 4; ++j) sums[j] += row[i + j] * x[i + j];
    for (; i < in; ++i) sums[0] += row[i] * x[i];
    y[o] += (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
}

// For y = W x: dx += W^T dy.
void AddInputGradient(const Vector& w, const double* dy, int64_t in, int64_t out, double* dx) {
  for (int64_t o = 0; o < out; ++o)
    for (int64_t i = 0; i < in; ++i) dx[i] += w[o * in + i] * dy[o];
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
  AddInputGradient(w, dy, in, out, dx);
  AddWeightGradient(x, dy, 1, in, out, dw);
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// One row of the batch: what its forward computes, kept for its backward.
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

  void Forward() {
    if (in_.additive) {
      keys_.assign(l_ * h_, 0);
      for (int64_t l = 0; l < l_; ++l)
        AddProduct(parameter(1), context_ + l * h_, h_, h_, &keys_[l * h_]);
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
    for (int64_t t = 0; t < t_; ++t) {
      if (in_.layers == 0) {
        std::copy_n(&in_.steps[(row_ * t_ + t) * h_], h_, &hs_[t * h_]);
      } else {
        RunLayers(t);
      }
      Attend(t);
      std::copy_n(&result_.y[(row_ * t_ + t) * h_], h_, &fed_[(t + 1) * h_]);
    }
  }

  void Backward() {
    Vector d_fed(h_), d_keys(in_.additive ? l_ * h_ : 0);
    std::vector<Vector> d_c(in_.layers, Vector(h_)), d_h(in_.layers, Vector(h_));
    for (int64_t t = t_ - 1; t >= 0; --t) {
      const double* dy = &in_.dy[(row_ * t_ + t) * h_];
      Vector d_y(dy, dy + h_);
      for (int64_t i = 0; i < h_; ++i) d_y[i] += d_fed[i];
      Vector d_top(h_);
      AttendBackward(t, d_y, &d_top, &d_keys);
      if (in_.layers == 0) {
        std::copy_n(d_top.begin(), h_, &result_.dsteps[(row_ * t_ + t) * h_]);
      } else {
        RunLayersBackward(t, d_top, &d_c, &d_h, &d_fed);
      }
    }
    if (in_.additive) {
      for (int64_t l = 0; l < l_; ++l)
        AddProductGradients(parameter(1), context_ + l * h_, &d_keys[l * h_], h_, h_,
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
    std::copy_n(d_fed.begin(), h_, &result_.dinitial[0][row_ * h_]);
    for (int64_t n = 0; n < in_.layers; ++n) {
      std::copy_n(d_c[n].begin(), h_, &result_.dinitial[1 + 2 * n][row_ * h_]);
      std::copy_n(d_h[n].begin(), h_, &result_.dinitial[2 + 2 * n][row_ * h_]);
    }
  }

 private:
  struct Layer {
    int64_t width = 0;  // Of its input.
    Vector x;           // [T, width]
    Vector c, h;        // [T + 1, H], the initial state first.
    Vector gates;       // [T, 4, H] after their functions: in, forget, out, write.
    Vector d_sums;      // [T, 4, H], the gradients of what the functions are of.
  };

  const Vector& parameter(int64_t i) const {
    return in_.parameters[first_attention_parameter_ + i];
  }
  Vector& d_parameter(int64_t i) { return result_.dparameters[first_attention_parameter_ + i]; }

  void RunLayers(int64_t t) {
    for (int64_t n = 0; n < in_.layers; ++n) {
      Layer& layer = layers_[n];
      double* x = &layer.x[t * layer.width];
      if (n == 0) {
        std::copy_n(&in_.steps[(row_ * t_ + t) * in_.word_size], in_.word_size, x);
        std::copy_n(&fed_[t * h_], h_, x + in_.word_size);
      } else {
        std::copy_n(&layers_[n - 1].h[(t + 1) * h_], h_, x);
      }
      Vector sums = in_.parameters[3 * n + 1];
      AddProduct(in_.parameters[3 * n], x, layer.width, 4 * h_, sums.data());
      AddProduct(in_.parameters[3 * n + 2], &layer.h[t * h_], h_, 4 * h_, sums.data());
      double* gates = &layer.gates[t * 4 * h_];
      for (int64_t i = 0; i < 3 * h_; ++i) gates[i] = Sigmoid(sums[i]);
      for (int64_t i = 3 * h_; i < 4 * h_; ++i) gates[i] = std::tanh(sums[i]);
      for (int64_t i = 0; i < h_; ++i) {
        const double c = gates[h_ + i] * layer.c[t * h_ + i] + gates[i] * gates[3 * h_ + i];
        layer.c[(t + 1) * h_ + i] = c;
        layer.h[(t + 1) * h_ + i] = gates[2 * h_ + i] * std::tanh(c);
      }
    }
    std::copy_n(&layers_.back().h[(t + 1) * h_], h_, &hs_[t * h_]);
  }

  // d_c, d_h: what step t + 1 gave to the states of step t; becomes what step t gives to t - 1.
  void RunLayersBackward(int64_t t, const Vector& d_top, std::vector<Vector>* d_c,
                         std::vector<Vector>* d_h, Vector* d_fed) {
    Vector d_above = d_top;
    for (int64_t n = in_.layers - 1; n >= 0; --n) {
      Layer& layer = layers_[n];
      const double* gates = &layer.gates[t * 4 * h_];
      double* d_sums = &layer.d_sums[t * 4 * h_];
      for (int64_t i = 0; i < h_; ++i) {
        const double in = gates[i], forget = gates[h_ + i], out = gates[2 * h_ + i],
                     write = gates[3 * h_ + i];
        const double tanh_c = std::tanh(layer.c[(t + 1) * h_ + i]);
        const double dh = d_above[i] + (*d_h)[n][i];
        const double dc = (*d_c)[n][i] + dh * out * (1 - tanh_c * tanh_c);
        d_sums[i] = dc * write * in * (1 - in);
        d_sums[h_ + i] = dc * layer.c[t * h_ + i] * forget * (1 - forget);
        d_sums[2 * h_ + i] = dh * tanh_c * out * (1 - out);
        d_sums[3 * h_ + i] = dc * in * (1 - write * write);
        (*d_c)[n][i] = dc * forget;
      }
      for (int64_t i = 0; i < 4 * h_; ++i) result_.dparameters[3 * n + 1][i] += d_sums[i];
      (*d_h)[n].assign(h_, 0);
      AddInputGradient(in_.parameters[3 * n + 2], d_sums, h_, 4 * h_, (*d_h)[n].data());
      Vector dx(layer.width);
      AddInputGradient(in_.parameters[3 * n], d_sums, layer.width, 4 * h_, dx.data());
      if (n > 0) {
        d_above = dx;
      } else {
        std::copy_n(dx.begin(), in_.word_size, &result_.dsteps[(row_ * t_ + t) * in_.word_size]);
        std::copy_n(dx.begin() + in_.word_size, h_, d_fed->begin());
      }
    }
  }

  void Attend(int64_t t) {
    const double* h = &hs_[t * h_];
    double* q = &q_[t * h_];
    double* attn = &attn_[t * l_];
    AddProduct(parameter(0), h, h_, h_, q);
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
    AddProduct(parameter(in_.additive ? 3 : 1), joined, 2 * h_, h_, y);
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
  for (int64_t row = 0; row < inputs.rows; ++row) {
    RowEvaluation evaluation(inputs, row, &result);
    evaluation.Forward();
    if (gradients) evaluation.Backward();
  }
  return result;
}

}  // namespace ttbench
