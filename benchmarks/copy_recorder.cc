#include "benchmarks/copy_recorder.h"

#include <ATen/record_function.h>
#include <c10/core/StorageImpl.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

namespace ttbench {
namespace {

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

constexpr const char* kEngine = "autograd::engine::";

// Bits: what a buffer's elements were made from.
constexpr unsigned kFromInputs = 1, kFromGradients = 2;

// A tensor that an operator is given or gives, without keeping it alive.
struct Seen {
  WeakStorage storage;
  Layout layout;
  int64_t bytes;  // Of distinct elements.
};

using Key = const c10::StorageImpl*;
Key KeyOf(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }
Key KeyOf(const Seen& seen) { return seen.storage._unsafe_get_target(); }

Layout LayoutOf(const at::Tensor& tensor) { return {tensor.sizes().vec(), tensor.strides().vec()}; }

Seen See(const at::Tensor& tensor) {
  Layout layout = LayoutOf(tensor);
  int64_t elements = 1;
  for (size_t dim = 0; dim < layout.sizes.size(); ++dim) {
    if (layout.strides[dim] != 0) elements *= layout.sizes[dim];
  }
  return {tensor.storage().getWeakStorageImpl(), std::move(layout),
          elements * static_cast<int64_t>(tensor.element_size())};
}

// The tensors among an operator's arguments or results.
template <typename Values>
std::vector<Seen> TensorsOf(const Values& values) {
  std::vector<Seen> seen;
  auto add = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.has_storage()) seen.push_back(See(tensor));
  };
  for (const c10::IValue& value : values) {
    if (value.isTensor()) add(value.toTensor());
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) add(tensor);
    }
  }
  return seen;
}

// "mm" for aten::mm, "MmBackward0" for its node and for the engine's evaluation of it, and "Fn" for
// that of torch::autograd::CppNode<(anonymous namespace)::Fn>.
std::string OperatorName(std::string name) {
  const size_t node = name.find("CppNode<");
  if (node != std::string::npos) name = name.substr(0, name.rfind('>'));
  const size_t colon = name.find_last_of(": ");
  return colon == std::string::npos ? name : name.substr(colon + 1);
}

bool MakesEmpty(const std::string& op) {
  return op.rfind("empty", 0) == 0 || op.rfind("new_empty", 0) == 0;
}

bool Holds(const std::vector<Seen>& tensors, Key key) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const Seen& seen) { return KeyOf(seen) == key; });
}

}  // namespace

class CopyRecorder::State {
 public:
  State(const MemoryMeter& meter, const Tensors& inputs, const Tensors& parameters)
      : meter_(meter) {
    for (const at::Tensor& input : inputs) {
      Buffer& buffer = BufferOf(input);
      buffer.given = Origin::kInput;
      buffer.made_from = kFromInputs;
    }
    for (const at::Tensor& parameter : parameters) BufferOf(parameter).given = Origin::kParameter;
  }

  void EndForward(const Tensors& results) {
    EndPass();
    for (size_t i = 0; i < copies_.size(); ++i) {
      const Key target = targets_[i];
      copies_[i].held = !buffers_.at(target).storage.expired() &&
                        std::none_of(results.begin(), results.end(), [&](const at::Tensor& result) {
                          return KeyOf(result) == target;
                        });
    }
  }

  void BeginBackward(const Tensors& gradients) {
    in_backward_ = true;
    for (const at::Tensor& gradient : gradients) {
      Buffer& buffer = BufferOf(gradient);
      buffer.made_from = kFromGradients;
      buffer.producer.op.clear();
    }
  }

  // What was asked for by the variant itself and is gone, without having been a copy's target.
  void EndPass() {
    for (auto& [key, scratch] : asked_for_) {
      const Buffer& buffer = buffers_.at(key);
      if (buffer.storage.expired() && !buffer.is_copy) scratch_.push_back(std::move(scratch));
    }
    asked_for_.clear();
  }

  void EnterNode(const std::string& name) { Enter(name, {}); }

  void EnterOperator(const at::RecordFunction& function) {
    Enter(function.name(), TensorsOf(function.inputs()));
    const Call& call = calls_.back();
    if (call.op != "copy_" || function.inputs().size() < 2) return;
    const at::Tensor target = function.inputs()[0].toTensor();
    const at::Tensor source = function.inputs()[1].toTensor();
    if (target.numel() > 0) NoteCopy(target, source);
  }

  void Leave(const at::RecordFunction& function) {
    if (calls_.empty()) return;
    const Call call = std::move(calls_.back());
    calls_.pop_back();
    const std::vector<Seen> results = TensorsOf(function.outputs());
    NoteResults(call, results);
    if (MakesEmpty(call.op)) {
      NoteAskedFor(call, results);
    } else if (!results.empty()) {
      NoteReads(call, results);
    }
  }

  const std::vector<RecordedCopy>& copies() const { return copies_; }
  const std::vector<RecordedScratch>& scratch() const { return scratch_; }
  int64_t computed_bytes() const { return computed_bytes_; }
  int64_t computed_flops() const { return computed_flops_; }

 private:
  struct Call {
    std::string op;
    std::vector<Seen> arguments;
    int64_t number;    // Of all calls, in the order in which they began.
    bool is_operator;  // Not a node of the backward.
  };

  struct Buffer {
    explicit Buffer(WeakStorage weak) : storage(std::move(weak)) {}
    WeakStorage storage;  // So that its address belongs to no other while it is kept here.
    std::optional<Origin> given;
    unsigned made_from = 0;
    BufferUse producer;
    int64_t produced_in = -1;  // The number of calls that had begun.
    bool is_copy = false;
  };

  Buffer& BufferOf(const at::Tensor& tensor) {
    return BufferOf(KeyOf(tensor), tensor.storage().getWeakStorageImpl());
  }
  Buffer& BufferOf(Key key, const WeakStorage& storage) {
    return buffers_.try_emplace(key, storage).first->second;
  }

  static int64_t FlopsOf(const Call& call, const Seen& result) {
    int64_t numel = 1;
    for (const int64_t size : result.layout.sizes) numel *= size;
    if (call.op == "mul") return numel;
    if (call.op != "mm" && call.op != "bmm") return 0;
    return 2 * numel * call.arguments.front().layout.sizes.back();
  }

  void Enter(const std::string& name, std::vector<Seen> arguments) {
    const bool is_operator = name.find("::") != std::string::npos && name.rfind(kEngine, 0) != 0 &&
                             name.find("CppNode<") == std::string::npos;
    calls_.push_back({OperatorName(name), std::move(arguments), ++begun_, is_operator});
  }

  unsigned MadeFrom(const std::vector<Seen>& tensors) const {
    unsigned made_from = 0;
    for (const Seen& seen : tensors) {
      const auto found = buffers_.find(KeyOf(seen));
      if (found != buffers_.end()) made_from |= found->second.made_from;
    }
    return made_from;
  }

  std::vector<std::string> Chain() const {
    std::vector<std::string> chain;
    for (const Call& call : calls_) {
      // A node shows twice: as evaluated by the engine, and as itself.
      if (chain.empty() || chain.back() != call.op) chain.push_back(call.op);
    }
    return chain;
  }

  void NoteAskedFor(const Call& call, const std::vector<Seen>& results) {
    const bool by_operator = std::any_of(calls_.begin(), calls_.end(),
                                         [](const Call& outer) { return outer.is_operator; });
    if (by_operator || results.empty() || results.front().bytes == 0) return;
    const Seen& result = results.front();
    RecordedScratch scratch{Chain(), result.bytes, meter_.EventOf(result.storage.lock()->data()),
                            in_backward_};
    scratch.chain.push_back(call.op);
    asked_for_.emplace_back(KeyOf(result), std::move(scratch));
  }

  void NoteCopy(const at::Tensor& target, const at::Tensor& source) {
    Buffer from = BufferOf(source);
    Buffer& to = BufferOf(target);
    to.made_from |= from.made_from;
    to.is_copy = true;
    RecordedCopy copy;
    copy.chain = Chain();
    copy.bytes = target.numel() * static_cast<int64_t>(target.element_size());
    copy.source = LayoutOf(source.expand_as(target));
    copy.target = LayoutOf(target);
    copy.converts = source.scalar_type() != target.scalar_type();
    copy.origin = from.given                          ? *from.given
                  : (from.made_from & kFromGradients) ? Origin::kGradient
                  : (from.made_from & kFromInputs)    ? Origin::kActivation
                                                      : Origin::kParametersAlone;
    copy.source_event = meter_.EventOf(source.storage().data());
    copy.target_event = meter_.EventOf(target.storage().data());
    copy.in_backward = in_backward_;
    copy.producer = from.producer;
    copies_.push_back(std::move(copy));
    targets_.push_back(KeyOf(target));
  }

  // A result that is no view of an argument is new: the innermost operator that gives it made it.
  void NoteResults(const Call& call, const std::vector<Seen>& results) {
    for (const Seen& result : results) {
      Buffer& buffer = BufferOf(KeyOf(result), result.storage);
      buffer.made_from |= MadeFrom(call.arguments);
      if (Holds(call.arguments, KeyOf(result)) || buffer.produced_in >= call.number ||
          MakesEmpty(call.op)) {
        continue;
      }
      buffer.producer = {call.op, result.layout};
      buffer.produced_in = begun_;
      if (buffer.is_copy) continue;
      computed_bytes_ += result.bytes;
      computed_flops_ += FlopsOf(call, result);
      for (const Seen& argument : call.arguments) computed_bytes_ += argument.bytes;
    }
  }

  // The first operator that reads a copy and gives something else than a view of it.
  void NoteReads(const Call& call, const std::vector<Seen>& results) {
    for (const Seen& argument : call.arguments) {
      if (Holds(results, KeyOf(argument))) continue;
      for (size_t i = copies_.size(); i-- > 0;) {
        if (targets_[i] == KeyOf(argument) && copies_[i].consumer.op.empty())
          copies_[i].consumer = {call.op, argument.layout};
      }
    }
  }

  const MemoryMeter& meter_;
  bool in_backward_ = false;
  int64_t begun_ = 0, computed_bytes_ = 0, computed_flops_ = 0;
  std::vector<Call> calls_;  // Those under way, outermost first.
  std::unordered_map<Key, Buffer> buffers_;
  std::vector<RecordedCopy> copies_;
  std::vector<Key> targets_;                                // Of each copy.
  std::vector<std::pair<Key, RecordedScratch>> asked_for_;  // In this pass.
  std::vector<RecordedScratch> scratch_;
};

namespace {

// Callbacks are plain functions.
thread_local CopyRecorder::State* t_state = nullptr;

std::unique_ptr<at::ObserverContext> EnterOperator(const at::RecordFunction& function) {
  t_state->EnterOperator(function);
  return nullptr;
}

// Its inputs are not asked for: they would be held, and a gradient that is held is copied where it
// would have been taken over.
std::unique_ptr<at::ObserverContext> EnterNode(const at::RecordFunction& function) {
  t_state->EnterNode(function.name());
  return nullptr;
}

void Leave(const at::RecordFunction& function, at::ObserverContext*) { t_state->Leave(function); }

}  // namespace

CopyRecorder::CopyRecorder(const MemoryMeter& meter, const Tensors& inputs,
                           const Tensors& parameters)
    : state_(std::make_unique<State>(meter, inputs, parameters)) {
  t_state = state_.get();
  operators_ = at::addThreadLocalCallback(at::RecordFunctionCallback(EnterOperator, Leave)
                                              .needsInputs(true)
                                              .needsOutputs(true)
                                              .scopes({at::RecordScope::FUNCTION}));
  nodes_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(EnterNode, Leave).scopes({at::RecordScope::BACKWARD_FUNCTION}));
}

CopyRecorder::~CopyRecorder() {
  at::removeCallback(nodes_);
  at::removeCallback(operators_);
  t_state = nullptr;
}

void CopyRecorder::EndForward(const Tensors& results) { state_->EndForward(results); }
void CopyRecorder::BeginBackward(const Tensors& gradients) { state_->BeginBackward(gradients); }
void CopyRecorder::EndBackward() { state_->EndPass(); }
const std::vector<RecordedCopy>& CopyRecorder::copies() const { return state_->copies(); }
const std::vector<RecordedScratch>& CopyRecorder::scratch() const { return state_->scratch(); }
int64_t CopyRecorder::computed_bytes() const { return state_->computed_bytes(); }
int64_t CopyRecorder::computed_flops() const { return state_->computed_flops(); }

}  // namespace ttbench
