// Where the buffers of a step graph lie once the step is cloned, and whether that is safe.
//
// A plan gives every buffer of every step a storage: one for each step, one for all steps, or that
// of another buffer. Safety is shown, not asserted: the schedule of a whole sequence is played
// through, noting which value each storage holds, and every read must find the value it means.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/attention/step_graph.h"

namespace ttbench {

struct StoragePlan {
  // Of each buffer: the buffer whose storage it lies in, mostly itself.
  std::vector<int> place;
  // Of each buffer: whether all steps share its storage.
  std::vector<bool> shared;
};

// Every buffer of every step has a storage of its own.
StoragePlan OwnStorage(const StepGraph& graph);
// The same, but each of `buffers` has one storage, which all steps share.
StoragePlan ShareAcrossSteps(const StepGraph& graph, const std::vector<int>& buffers);
// OwnStorage, but a module's gradInput takes the storage of its output where both have the same
// size and that is safe (reuseMem in seq2seq-attn). A module with several inputs has a table of
// gradInputs, which cannot take it.
StoragePlan ReuseOutputs(const StepGraph& graph);

// The first read that does not find its value when `steps` steps run forward and then backward, in
// one sentence; nothing if the plan is safe. An operation may write into what it reads only where
// it works element by element, or, for SoftMax, row by row.
std::optional<std::string> FindHazard(const StepGraph& graph, const StoragePlan& plan,
                                      int64_t steps = 3);

// The buffers that all steps may share: nothing after its step reads them. Sharing all of them at
// once is as safe as one, since each keeps a storage of its own.
std::vector<int> ShareableBuffers(const StepGraph& graph);

// What the two patches share. The first: gradInputs of the two products. Its sequel: of the
// modules' buffers (nngraph's sums are no module's) those that are shareable.
std::vector<int> ProductGradients(const StepGraph& graph);
std::vector<int> ShareableModuleBuffers(const StepGraph& graph);

// Bytes of all storages of a sequence.
int64_t StorageBytes(const StepGraph& graph, const StoragePlan& plan, int64_t steps,
                     int64_t element_bytes);

}  // namespace ttbench
