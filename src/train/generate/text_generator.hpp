// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/generate/sampling.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/model_rank.hpp"
#include "vocabpipe/step_plan.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace vocabpipe {

/// What a TextGenerator takes on a rank, in bytes.
struct TextGeneratorBytes {
    int64_t weights = 0;  ///< of the rank's part of the model
    int64_t context = 0;  ///< keys and values, and what a forward of the longest context works in

    [[nodiscard]] int64_t total() const { return weights + context; }
};

/// What the ranks of a generation share.
struct TextGeneratorOptions {
    ModelConfig model;  ///< whose seq_length is the longest context
    int ranks = 1;      ///< p: the model's layers and its vocabulary are spread over them
    int tensor = 1;     ///< t: ranks that share each stage
    int expert = 1;     ///< e: ranks that share the experts of each layer
    int threads_per_rank = 1;
    /// Device::operators() of the ranks' devices; null: the host's.
    const kernels::Operators* operators = nullptr;

    /// All ranks: p max(t, e). Where there are more expert than tensor ranks, replicas compute the
    /// same text, but for experts.
    [[nodiscard]] Mesh mesh() const {
        return {.pipeline = ranks,
                .data = expert > tensor ? expert / tensor : 1,
                .tensor = tensor,
                .expert = expert};
    }
};

/// Lets a model go on with one sequence: layers in stages and the vocabulary in shards over the
/// ranks of a world, keys and values kept, so that a token costs one forward of one token. Where
/// the context is full, its older half drops out, and the rest is read again from position 0.
///
/// Both kinds of forward are programs like any step's: the first pass over a text, and one token.
/// The tokens are the same for every number of pipeline ranks and of threads on the host. Tensor
/// ranks add up parts of products, and expert ranks parts of a token's sum over its experts, so
/// logits are those of t = e = 1 within rounding.
class TextGenerator {
public:
    /// Allocates the rank's part; its weights are 0 until they are filled in. Communicator, of the
    /// mesh's ranks, and device must outlive it. Collective; AgreedError.
    TextGenerator(Communicator& world, Device& device, const TextGeneratorOptions& options);
    ~TextGenerator();
    TextGenerator(const TextGenerator&) = delete;
    TextGenerator& operator=(const TextGenerator&) = delete;

    /// From the options alone; `rank` of the mesh.
    [[nodiscard]] static TextGeneratorBytes bytes(const TextGeneratorOptions& options, int rank);

    /// This rank's part of the model, and what fills it.
    [[nodiscard]] ModelRank& model();
    [[nodiscard]] Context& context();

    /// Runs the tokens that it has not seen. `tokens`: all of the text, one at least, which begins
    /// with the tokens of the last call unless start_over() came between. Collective.
    void read(std::span<const int32_t> tokens);
    /// This rank's logits after the last token that was read; of replicas the first one has them.
    [[nodiscard]] LogitsShard logits();
    /// The token after those that were read (sample()). Collective.
    [[nodiscard]] int32_t next(const SamplingOptions& options, double u);
    /// Another text follows.
    void start_over();

private:
    class Implementation;
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace vocabpipe
