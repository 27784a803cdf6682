// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters (LoRA) of one product: see LoraConfig. A product that files split (q, k, v) has
// an adapter per tensor of the files. All of them share x, so that their A lie below each other in
// one parameter, and so do their B.
//
// Tensor ranks share an adapter as they share its product. Where they cut the weight by rows, each
// has all of A and its rows of B; where by columns, each has its columns of A and all of B, and
// adds its part to the partial product, before the one sum of both. So nothing more is sent, and
// the gradient of what all of them have is a sum over them.
#pragma once

#include "src/model/blocks/stage_pass.hpp"
#include "src/model/parameter_source.hpp"
#include "vocabpipe/lora_config.hpp"

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// The part of a product that has an adapter of its own.
struct AdaptedPart {
    std::string module;                  ///< in files: the tensor's name without ".weight"
    int64_t first = 0;                   ///< the first of its columns of y
    int64_t out = 0;                     ///< columns of y
    std::vector<int64_t> ranges = {};    ///< of its columns, as LogicalParameter::ranges
    std::vector<FilePart> of_rows = {};  ///< the rows of B in files; empty: as they are held
};

struct AdapterOptions {
    LoraConfig lora;
    std::string name;                     ///< of the product
    std::vector<AdaptedPart> parts;       ///< at least one
    int64_t in = 0;                       ///< columns of x, of all tensor ranks
    int64_t out = 0;                      ///< columns of y, likewise
    TensorCut cut = TensorCut::repeated;  ///< of the product's weight
};

/// PEFT's prefix of all names.
inline constexpr std::string_view kAdapterPrefix = "base_model.model.";
/// The names of A and B in PEFT's files.
[[nodiscard]] std::string lora_a_name(const std::string& module);
[[nodiscard]] std::string lora_b_name(const std::string& module);

/// The adapters of one product. W makes x A^T and dy B again, for rank / out and rank / in of what
/// the product costs, so that F and I need not keep them.
class Adapter {
public:
    Adapter(const AdapterOptions& options, ParameterSource& parameters);

    /// y += scale (x A^T) B^T.  x (N, in), y (N, out).
    void add_forward(const StagePass& pass, ConstTensor x, Tensor y) const;
    /// dx += scale (dy B) A.  dy (N, out), dx (N, in).
    void add_backward_input(const StagePass& pass, ConstTensor dy, Tensor dx) const;
    /// dA = scale (dy B)^T x, dB = scale dy^T (x A^T).
    void backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x) const;

    [[nodiscard]] bool is_trained() const { return a_->gradient || b_->gradient; }
    [[nodiscard]] ScratchSize scratch(const ScratchFor& use) const;

private:
    /// A part as this rank has it.
    struct Columns {
        int64_t first = 0, count = 0;  ///< of y
        int64_t row = 0;               ///< the first of its rows of B
        int64_t low = 0;               ///< the first of its columns of x A^T
    };
    /// Calls use(columns) for every part, for y or dy of `columns` columns on this rank.
    template <typename Use>
    void each_part(int64_t columns, const Use& use) const;
    // Results lie in the same memory, Scratch::adapter_low.

    /// scale x A^T, (N, parts rank).
    Tensor reduce(const StagePass& pass, ConstTensor x) const;
    /// scale dy B, likewise.
    Tensor reduce_gradient(const StagePass& pass, ConstTensor dy) const;
    [[nodiscard]] int64_t low_columns() const {
        return std::ssize(options_.parts) * options_.lora.rank;
    }

    AdapterOptions options_;
    Parameter *a_, *b_;
};

}  // namespace vocabpipe
