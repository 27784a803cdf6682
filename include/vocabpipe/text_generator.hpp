// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/mesh.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/model_rank.hpp"
#include "vocabpipe/sampling.hpp"
#include "vocabpipe/step_plan.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace vocabpipe {

/// Memory of a TextGenerator on a rank, in bytes.
struct TextGeneratorBytes {
    int64_t weights = 0;  ///< of the rank's part of the model
    int64_t context = 0;  ///< keys, values and workspace of a forward of the longest context

    /// Both together.
    [[nodiscard]] int64_t total() const { return weights + context; }
};

/// Options of a generation, equal on all ranks.
struct TextGeneratorOptions {
    ModelConfig model;         ///< its seq_length is the longest context
    int ranks = 1;             ///< p: layers and vocabulary are spread over them
    int tensor = 1;            ///< t: ranks that share each stage
    int expert = 1;            ///< e: ranks that share the experts of each layer
    int expert_tensor = 1;     ///< x: of these the neighbors that share each expert
    int threads_per_rank = 1;  ///< OpenMP threads of a rank
    /// Whether the model's depths of multi-token prediction draft tokens (next_drafted()). Default:
    /// their weights are not held.
    bool draft = false;
    /// Device::operators() of the ranks' devices; null: the host's.
    const kernels::Operators* operators = nullptr;

    /// All ranks: p max(t, e). With more expert than tensor ranks, replicas compute the same text
    /// and share only the experts.
    [[nodiscard]] Mesh mesh() const {
        return {.pipeline = ranks,
                .data = expert > tensor ? expert / tensor : 1,
                .tensor = tensor,
                .expert = expert};
    }
};

/// What depths have drafted.
struct DraftCounts {
    int64_t drafted = 0;   ///< tokens
    int64_t accepted = 0;  ///< of these the tokens that the model predicts, too
    int64_t forwards = 0;  ///< of the model, in next_drafted()
    int64_t tokens = 0;    ///< that next_drafted() returned
};

/// Continues one sequence with a model: layers in stages and the vocabulary in shards over the
/// ranks of a world. It keeps keys and values, so that a token costs one forward of one token. When
/// the context is full, its older half is dropped and the rest is read again from position 0.
///
/// Both kinds of forward are programs as in training: the first pass over a text, and one token.
/// The tokens do not depend on the number of pipeline ranks and of host threads. Tensor ranks add
/// up parts of products, and expert ranks parts of a token's sum over its experts, so their logits
/// are those of t = e = 1 within rounding.
class TextGenerator {
public:
    /// Allocates the rank's part, with weights 0 until they are filled in. Communicator (of the
    /// mesh's ranks) and device must outlive it. UsageError for a model that cannot draft.
    /// Collective; AgreedError.
    TextGenerator(Communicator& world, Device& device, const TextGeneratorOptions& options);
    ~TextGenerator();
    TextGenerator(const TextGenerator&) = delete;
    TextGenerator& operator=(const TextGenerator&) = delete;

    /// Computed from the options alone; `rank` is one of the mesh.
    [[nodiscard]] static TextGeneratorBytes bytes(const TextGeneratorOptions& options, int rank);

    /// Takes the weights of the same model on the same ranks, for example of one that is trained,
    /// and forgets the text. Depths are passed over where this generator has none. UsageError if
    /// the rank has other parameters, as with other layers per stage or another vocabulary mode, or
    /// only its own part of them (ZeRO stage 3).
    void copy_weights(ModelRank& from);
    /// This rank's part of the model.
    [[nodiscard]] ModelRank& model();
    /// Context to fill it with.
    [[nodiscard]] Context& context();

    /// Runs the tokens that are new. `tokens`: the whole text, at least one token; it must begin
    /// with the tokens of the last call unless start_over() came between. Collective.
    void read(std::span<const int32_t> tokens);
    /// This rank's logits after the last token read, in next_drafted() after the last one that is
    /// part of the text; only the first replica has them.
    [[nodiscard]] LogitsShard logits();
    /// Samples the token after those that were read (sample()). Collective.
    [[nodiscard]] int32_t next(const SamplingOptions& options, double u);
    /// Greedy generation with drafts: reads as read() does, with tokens behind them that the depths
    /// have drafted, and returns those of them that are also the model's likeliest, then its
    /// likeliest token after these. So it returns the tokens that read() and next() at temperature
    /// 0 would return one after the other: 1 to min(most, D + 1) of them. There are no drafts after
    /// the first call for a text, after a context that was full, and beyond its end. Needs
    /// TextGeneratorOptions::draft. Collective.
    [[nodiscard]] std::vector<int32_t> next_drafted(std::span<const int32_t> tokens, int64_t most);
    /// Sums over all calls of next_drafted().
    [[nodiscard]] const DraftCounts& draft_counts() const;
    /// This rank's logits by which depth k = 1 .. D drafted in the last next_drafted(); empty if it
    /// did not.
    [[nodiscard]] LogitsShard draft_logits(int k) const;
    /// Forgets the text: another one follows.
    void start_over();

private:
    class Implementation;
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace vocabpipe
