// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/modules.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

/// Rows of a tensor in Hugging Face files that form a part of a logical parameter.
struct FilePart {
    std::string name;
    int64_t count = 0;     ///< rows of a matrix, elements of a vector
    int64_t file_row = 0;  ///< first row in the tensor, which parts may share
    /// From one row to the next: 2 takes every second row, as rotary positions of neighboring
    /// columns need.
    int64_t file_step = 1;
};

/// How the ranks of tensor parallelism, or of expert parallelism, share a parameter.
enum class TensorCut : uint8_t {
    repeated,  ///< each has all of it
    rows,      ///< each has rows: column-parallel weights, whose results are cut
    columns,   ///< each has columns: row-parallel weights, and biases of cut results
    experts,   ///< each rank of an expert team has its experts, or a part of each of them
};

/// One logical tensor of the model, independent of the ranks that hold it. Its index is its id,
/// which seeds the initialisation and orders the gradient norm, so neither depends on p.
struct LogicalParameter {
    std::string name;
    int64_t rows = 0;
    int64_t cols = 0;
    float init_std = 0;  ///< 0: constant
    float init_constant = 0;
    /// Above 0: uniform from -init_bound to init_bound, in place of the two above.
    float init_bound = 0;
    bool weight_decay = false;
    /// The correction bias of a router: fp32 in every run, equal on all replicas, without gradient
    /// and moments. OptimizerStep updates it by the load of its experts.
    bool correction_bias = false;
    /// A factor of a low-rank adapter (LoraConfig). A model with adapters trains them alone.
    bool adapter = false;
    /// The weight of a linear layer, which may have an adapter.
    bool linear = false;
    /// One operator makes the gradients of this parameter and of the one before it: both are
    /// frozen, or neither.
    bool gradient_with_previous = false;
    /// Files keep [in, out] (GPT-2's Conv1D); linear weights are held as [out, in].
    bool transposed_in_files = false;
    /// The tensors that files split it into, in the order of its rows: q, k, v; gate, up. Empty:
    /// files have one tensor of this name.
    std::vector<FilePart> parts = {};
    TensorCut cut = TensorCut::repeated;
    /// TensorCut::experts: how ranks that share an expert cut its part of the tensor, by rows or by
    /// columns.
    TensorCut expert_cut = TensorCut::columns;
    /// Consecutive ranges of rows or columns that are cut separately: q, k, v; gate, up; gate and
    /// up of every expert. Empty: one range of all.
    std::vector<int64_t> ranges = {};
};

/// Constructors of blocks ask it for their parameters, one after the other. So a block declares
/// each parameter once, both for the list of a model's parameters and for the memory of a rank's.
class ParameterSource {
public:
    virtual ~ParameterSource() = default;
    /// The next parameter of the block under construction. Null if it has no memory.
    virtual Parameter* next(LogicalParameter parameter) = 0;
};

/// Lists the parameters that blocks ask for.
class ParameterList final : public ParameterSource {
public:
    Parameter* next(LogicalParameter parameter) override;
    /// The number of parameters listed so far: the id of the next.
    [[nodiscard]] int size() const { return static_cast<int>(all_.size()); }
    /// Returns all parameters by id and empties the list.
    [[nodiscard]] std::vector<LogicalParameter> take() { return std::exchange(all_, {}); }

private:
    std::vector<LogicalParameter> all_;
};

/// Counts the parameters that blocks ask for.
class ParameterCount final : public ParameterSource {
public:
    /// Elements of a parameter, of all ranks that share it.
    struct Counted {
        TensorCut cut = TensorCut::repeated;
        int64_t elements = 0;
        bool correction_bias = false;
    };

    Parameter* next(LogicalParameter parameter) override;
    /// In the order of their ids.
    [[nodiscard]] const std::vector<Counted>& all() const { return all_; }

private:
    std::vector<Counted> all_;
};

/// Adds up elements of parameters, by how ranks share them.
class ElementCount {
public:
    void add(const ParameterCount::Counted& parameter);
    /// Elements of all ranks that share a parameter, without correction biases.
    [[nodiscard]] int64_t of(TensorCut cut) const { return elements_[static_cast<size_t>(cut)]; }
    [[nodiscard]] int64_t total() const;  ///< without correction biases
    [[nodiscard]] int64_t correction_biases() const { return correction_biases_; }

private:
    std::array<int64_t, 4> elements_{};  ///< [TensorCut]
    int64_t correction_biases_ = 0;
};

/// Hands out the parameters that a rank holds.
class HeldParameters final : public ParameterSource {
public:
    /// Hands out null pointers, for blocks that only compute sizes.
    HeldParameters() = default;
    /// `held`: in the order in which blocks ask for them.
    explicit HeldParameters(std::span<Parameter> held) : rest_(held), any_(!held.empty()) {}
    /// Throws Error if `parameter` is not the next one.
    Parameter* next(LogicalParameter parameter) override;

private:
    std::span<Parameter> rest_;
    bool any_ = false;
};

}  // namespace vocabpipe
