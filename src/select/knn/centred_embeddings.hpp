// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/files/sample_input.hpp"
#include "vocabpipe/world.hpp"

#include <memory>
#include <vector>

namespace vocabpipe {

/// Embeddings minus their mean. Hidden states of language models share a large common part, so the
/// cosine of any two is near 1 and says little; without the mean it tells them apart.
///
/// Each rank reads its share of the samples once. Elements are rounded to 2^-30 of the largest one
/// in their column and summed as integers, so the mean has the same bits for any number of ranks.
/// Collective; InputFileError on every rank.
[[nodiscard]] std::unique_ptr<EmbeddingInput> centre_embeddings(
    Communicator& world, std::unique_ptr<EmbeddingInput> input);

}  // namespace vocabpipe
