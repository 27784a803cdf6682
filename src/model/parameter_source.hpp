// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/modules.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

/// Rows of a tensor of Hugging Face's files that are a part of a logical parameter.
struct FilePart {
    std::string name;
    int64_t count = 0;     ///< rows of a matrix, elements of a vector
    int64_t file_row = 0;  ///< the first of them in the tensor, which other parts may share
};

/// How the ranks of tensor parallelism, or of expert parallelism, share a parameter.
enum class TensorCut : uint8_t {
    repeated,  ///< each has all of it
    rows,      ///< each has rows: of column-parallel weights, whose results are cut
    columns,   ///< each has columns: of row-parallel weights, and of biases of cut results
    experts,   ///< each rank of an expert team has rows: those of its experts
};

/// One logical tensor of the model, whatever ranks hold it. Its index is its id: it seeds the
/// initialisation and orders the gradient norm, so neither depends on p.
struct LogicalParameter {
    std::string name;
    int64_t rows = 0;
    int64_t cols = 0;
    float init_std = 0;  ///< 0: constant
    float init_constant = 0;
    bool weight_decay = false;
    /// The correction bias of a router: fp32 in every run, equal on all replicas, without gradient
    /// and moments. OptimizerStep updates it by the load of its experts.
    bool correction_bias = false;
    /// Files keep [in, out] (GPT-2's Conv1D); linear weights are held as [out, in].
    bool transposed_in_files = false;
    /// What files split it into, in the order of its rows: q, k, v; gate, up. Empty: nothing, the
    /// name is the file's.
    std::vector<FilePart> parts = {};
    TensorCut cut = TensorCut::repeated;
    /// Rows, or columns, that are cut each for itself, one after the other: q, k, v; gate, up.
    /// Empty: all of them at once.
    std::vector<int64_t> ranges = {};
};

/// What the constructors of blocks ask for their parameters, one after the other. So a block writes
/// each parameter down once: for the list of a model's parameters and for the memory of a rank's.
class ParameterSource {
public:
    virtual ~ParameterSource() = default;
    /// The next parameter of the block under construction. Null where there is no memory.
    virtual Parameter* next(LogicalParameter parameter) = 0;
};

/// Lists what is asked for.
class ParameterList final : public ParameterSource {
public:
    Parameter* next(LogicalParameter parameter) override;
    /// How many have been asked for: the id of the next.
    [[nodiscard]] int size() const { return static_cast<int>(all_.size()); }
    /// All of them by id; leaves none.
    [[nodiscard]] std::vector<LogicalParameter> take() { return std::exchange(all_, {}); }

private:
    std::vector<LogicalParameter> all_;
};

/// Hands out parameters that a rank holds.
class HeldParameters final : public ParameterSource {
public:
    /// Hands out none: for sizes alone.
    HeldParameters() = default;
    /// `held`: in the order in which blocks ask for them.
    explicit HeldParameters(std::span<Parameter> held) : rest_(held), any_(!held.empty()) {}
    /// Throws Error for a parameter that does not come next.
    Parameter* next(LogicalParameter parameter) override;

private:
    std::span<Parameter> rest_;
    bool any_ = false;
};

}  // namespace vocabpipe
