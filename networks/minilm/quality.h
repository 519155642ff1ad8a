// How far the embeddings of a changed encoder are from the original's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace ttbench {

struct EmbeddingQuality {
  // Cosine of each sentence's embedding with the original's: the mean and the least.
  double mean_cosine = 0;
  double worst_cosine = 0;
  // Spearman's correlation of the cosines of all pairs of sentences: whether the same sentences are
  // found alike.
  double spearman = 0;
};

// Both [sentences, width], of at least three sentences.
EmbeddingQuality CompareEmbeddings(const at::Tensor& original, const at::Tensor& changed);

// Spearman's rank correlation; equal values share their mean rank. 0 where all of one side are
// equal. Both of the same size, at least two.
double SpearmanCorrelation(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace ttbench
