#include "kernels/attention/storage.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "kernels/shape.h"

namespace ttbench {
namespace {

// Plays the schedule of a sequence through a plan.
class Player {
 public:
  Player(const StepGraph& graph, const StoragePlan& plan) : graph_(graph), plan_(plan) {}

  std::optional<std::string> Run(int64_t steps) {
    for (int64_t step = 0; step < steps; ++step) Play(graph_.forward, step);
    CheckAll(graph_.read_after_forward, steps, "the caller, after the forward,");
    for (int64_t step = steps - 1; step >= 0; --step) Play(graph_.backward, step);
    CheckAll(graph_.read_after_backward, steps, "the caller, after the backward,");
    return hazard_;
  }

 private:
  using Storage = std::pair<int, int64_t>;  // (place, step; -1 for all steps)
  using Content = std::pair<int, int64_t>;  // (buffer, step)
  Storage StorageOf(int buffer, int64_t step) const {
    const int place = plan_.place[buffer];
    return {place, plan_.shared[buffer] ? -1 : step};
  }

  void Play(const std::vector<Action>& actions, int64_t step) {
    for (const Action& action : actions) {
      const std::string who = NameOf(action) + " of step " + std::to_string(step + 1);
      std::set<Storage> read;
      for (const Read& r : action.reads) {
        if (step < r.back) continue;  // What precedes the first step is the caller's.
        Check(r.buffer, step - r.back, who);
        read.insert(StorageOf(r.buffer, step - r.back));
      }
      for (int buffer : action.writes) {
        const Storage storage = StorageOf(buffer, step);
        if (read.count(storage) && !WorksInPlace(action)) {
          Note(who + " writes " + graph_.buffers[buffer].name + " into what it still reads");
        }
        contents_[storage] = {buffer, step};
      }
    }
  }

  void CheckAll(const std::vector<int>& buffers, int64_t steps, const std::string& who) {
    for (int64_t step = 0; step < steps; ++step)
      for (int buffer : buffers) Check(buffer, step, who);
  }

  void Check(int buffer, int64_t step, const std::string& who) {
    const auto found = contents_.find(StorageOf(buffer, step));
    const Content want{buffer, step};
    if (found != contents_.end() && found->second == want) return;
    std::string text =
        who + " reads " + graph_.buffers[buffer].name + " of step " + std::to_string(step + 1);
    if (found == contents_.end()) {
      Note(text + ", which nothing has written");
    } else {
      Note(text + ", but finds " + graph_.buffers[found->second.first].name + " of step " +
           std::to_string(found->second.second + 1));
    }
  }

  void Note(std::string text) {
    if (!hazard_) hazard_ = std::move(text);
  }

  std::string NameOf(const Action& action) const {
    if (action.op >= 0) {
      return graph_.ops[action.op].name + (action.backward ? "'s backward" : "'s forward");
    }
    return (action.writes.empty() ? "the delivery of d(" : "the sum of d(") +
           graph_.values[action.value].name + ")";
  }

  bool WorksInPlace(const Action& action) const {
    if (action.op < 0) return false;
    switch (graph_.ops[action.op].kind) {
      case OpKind::kTanh:
      case OpKind::kSigmoid:
      case OpKind::kSoftMax:
        return true;
      default:
        return false;
    }
  }

  const StepGraph& graph_;
  const StoragePlan& plan_;
  std::map<Storage, Content> contents_;
  std::optional<std::string> hazard_;
};

}  // namespace

StoragePlan OwnStorage(const StepGraph& graph) {
  StoragePlan plan;
  plan.place.resize(graph.buffers.size());
  std::iota(plan.place.begin(), plan.place.end(), 0);
  plan.shared.assign(graph.buffers.size(), false);
  return plan;
}

StoragePlan ShareAcrossSteps(const StepGraph& graph, const std::vector<int>& buffers) {
  StoragePlan plan = OwnStorage(graph);
  for (int buffer : buffers) plan.shared[buffer] = true;
  return plan;
}

StoragePlan ReuseOutputs(const StepGraph& graph) {
  StoragePlan plan = OwnStorage(graph);
  for (const Operation& op : graph.ops) {
    if (op.output_buffer < 0 || op.grad_inputs.size() != 1) continue;
    const int gradient = op.grad_inputs.front();
    if (graph.buffers[gradient].elements() != graph.buffers[op.output_buffer].elements()) continue;
    StoragePlan candidate = plan;
    candidate.place[gradient] = op.output_buffer;
    if (!FindHazard(graph, candidate)) plan = std::move(candidate);
  }
  return plan;
}

std::optional<std::string> FindHazard(const StepGraph& graph, const StoragePlan& plan,
                                      int64_t steps) {
  return Player(graph, plan).Run(steps);
}

std::vector<int> ShareableBuffers(const StepGraph& graph) {
  std::vector<int> shareable;
  for (int buffer = 0; buffer < static_cast<int>(graph.buffers.size()); ++buffer) {
    if (!FindHazard(graph, ShareAcrossSteps(graph, {buffer}))) shareable.push_back(buffer);
  }
  return shareable;
}

std::vector<int> ProductGradients(const StepGraph& graph) {
  std::vector<int> buffers;
  for (const Operation& op : graph.ops) {
    if (op.kind != OpKind::kMatMul) continue;
    buffers.insert(buffers.end(), op.grad_inputs.begin(), op.grad_inputs.end());
  }
  return buffers;
}

std::vector<int> ShareableModuleBuffers(const StepGraph& graph) {
  std::vector<int> buffers = ShareableBuffers(graph);
  buffers.erase(
      std::remove_if(buffers.begin(), buffers.end(),
                     [&](int buffer) { return graph.buffers[buffer].role == Role::kGradSum; }),
      buffers.end());
  return buffers;
}

int64_t StorageBytes(const StepGraph& graph, const StoragePlan& plan, int64_t steps,
                     int64_t element_bytes) {
  int64_t bytes = 0;
  for (size_t buffer = 0; buffer < graph.buffers.size(); ++buffer) {
    if (plan.place[buffer] != static_cast<int>(buffer)) continue;
    const int64_t each = CheckedMul(graph.buffers[buffer].elements(), element_bytes);
    bytes = CheckedAdd(bytes, plan.shared[buffer] ? each : CheckedMul(each, steps));
  }
  return bytes;
}

}  // namespace ttbench
