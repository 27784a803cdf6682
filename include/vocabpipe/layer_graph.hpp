// SPDX-License-Identifier: Apache-2.0
// Layers of your own, written as their forward alone: ModelConfig::layer_forward. The library
// derives the backward (whole, or as I and W), what is kept and what is recomputed, memory, FLOPs,
// and the list of parameters, which are then initialised, sharded, saved and trained like all
// others.
#pragma once

#include "vocabpipe/activation.hpp"
#include "vocabpipe/attention_shape.hpp"
#include "vocabpipe/context.hpp"
#include "vocabpipe/layer_forward.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/rms_norm_options.hpp"
#include "vocabpipe/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

struct GraphRecord;

/// Options of LayerGraph::linear().
struct LinearValue {
    /// Columns of y: one number, or several results of one product side by side, such as q, k, v.
    std::vector<int64_t> out;
    bool bias = true;                     ///< whether there is a bias
    std::optional<float> init_std = {};   ///< of the initial weights; none: ModelConfig::init_std
    std::vector<std::string> parts = {};  ///< in files each of `out` is a tensor with this name
    bool transposed_in_files = false;     ///< files keep [in, out] (GPT-2's Conv1D)
};

/// Most inputs of a LayerOperator, and most weights.
inline constexpr size_t kMostOperatorInputs = 8;
inline constexpr size_t kMostOperatorWeights = 8;

/// A weight of a LayerOperator.
struct OperatorWeight {
    std::string name;          ///< as in LayerGraph::linear(), with its ending
    int64_t rows = 1;          ///< 1: a vector
    int64_t cols = 0;          ///< columns
    float init_std = 0;        ///< standard deviation of the initial values
    float init_constant = 0;   ///< the initial values where init_std is 0
    bool weight_decay = true;  ///< whether the optimizer decays it
};

/// The tensors that a LayerOperator meets: in the memory of the rank's device, dense, of the run's
/// type. In a ModelForward (sequences * rows, columns), below (N, columns).
struct OperatorTensors {
    std::span<const ConstTensor> x;        ///< inputs, (N, columns); in backwards if they are read
    ConstTensor y = {};                    ///< (N, columns), in backwards if it is read
    std::span<const ConstTensor> weights;  ///< in the order of LayerOperator::weights
};

/// An operator of your own, for LayerGraph::apply(). Rows are the tokens of the microbatch,
/// sequence after sequence.
struct LayerOperator {
    std::string name;     ///< for messages
    int64_t columns = 0;  ///< of its result y
    int64_t rows = 0;     ///< of y in a sequence, in a ModelForward; 0: as many as x[0] has
    std::vector<OperatorWeight> weights = {};  ///< none: nothing is trained
    /// y = forward(x, weights).
    std::function<void(Context&, const Microbatch&, const OperatorTensors&, Tensor y)> forward;
    /// Sets dx[i], the gradient of input i, from dy. No dx shares memory with dy or another dx.
    std::function<void(Context&, const Microbatch&, const OperatorTensors&, ConstTensor dy,
                       std::span<const Tensor> dx)>
        backward_input;
    /// Sets the gradients of the weights (fp32), or adds to them. Needed with weights.
    std::function<void(Context&, const Microbatch&, const OperatorTensors&, ConstTensor dy,
                       std::span<const Tensor> dweights, bool accumulate)>
        backward_weight = {};
    bool backward_reads_inputs = true;   ///< false: they need not be kept for it
    bool backward_reads_output = false;  ///< true: it is kept for it
    bool recompute = false;              ///< Recompute::selective makes y again, not keep it
    double flops = 0;                    ///< of a forward, per token, for costs
};

/// The functions that a LayerForward composes. All tensors have the run's type. Names of parameters
/// are what follows the layer's number in files: "attn.c_proj" becomes
/// "h.3.attn.c_proj.weight" in layer 3 of the family gpt2. Functions throw UsageError that names
/// the layer, and what is wrong.
class LayerGraph {
public:
    /// For the library.
    explicit LayerGraph(GraphRecord& record)
        : record_(record), self_(std::make_shared<LayerGraph*>(this)) {}
    virtual ~LayerGraph() { *self_ = nullptr; }
    LayerGraph(const LayerGraph&) = delete;
    LayerGraph& operator=(const LayerGraph&) = delete;

    [[nodiscard]] const ModelConfig& model() const;  ///< the layer's model
    [[nodiscard]] int layer() const;                 ///< its number in the model, from 0

    /// y = x w^T + b.
    [[nodiscard]] LayerValue linear(const std::string& name, LayerValue x,
                                    const LinearValue& options);
    /// The same with one result of `columns`, and a bias.
    [[nodiscard]] LayerValue linear(const std::string& name, LayerValue x, int64_t columns) {
        return linear(name, std::move(x), LinearValue{.out = {columns}});
    }
    /// LayerNorm of every row.
    [[nodiscard]] LayerValue layer_norm(const std::string& name, LayerValue x,
                                        float epsilon = 1e-5F);
    /// RMSNorm of every row.
    [[nodiscard]] LayerValue rms_norm(const std::string& name, LayerValue x,
                                      const kernels::RmsNormOptions& options = {});
    // AttentionShape::kv_heads 0 means as many as heads, in all functions of heads.

    /// RMSNorm of every head of q and of k; v stays. qkv (N, qkv_columns).
    [[nodiscard]] LayerValue head_norm(const std::string& q_name, const std::string& k_name,
                                       LayerValue qkv, const kernels::AttentionShape& shape,
                                       const kernels::RmsNormOptions& options = {});
    /// q and k with the rotary positions that the model has in this layer (ModelConfig::rope).
    [[nodiscard]] LayerValue rotary(LayerValue qkv, const kernels::AttentionShape& shape);
    /// The heads of attention, (N, output_columns). The microbatch sets sequences and seq_length of
    /// the shape. Documents limit it only if it is causal.
    [[nodiscard]] LayerValue attention(LayerValue qkv, const kernels::AttentionShape& shape);
    /// y = activation(x).
    [[nodiscard]] LayerValue activation(kernels::Activation activation, LayerValue x);
    /// y = activation(gate) * up, (N, f), of gate | up, (N, 2 f).
    [[nodiscard]] LayerValue gated(kernels::Activation activation, LayerValue gate_up);
    /// a + b.
    [[nodiscard]] LayerValue add(LayerValue a, LayerValue b);
    /// factor x.
    [[nodiscard]] LayerValue scale(LayerValue x, float factor);
    /// The result of an operator of your own.
    [[nodiscard]] LayerValue apply(const LayerOperator& made, const std::vector<LayerValue>& x);

    /// Returns x, which selective recomputation keeps, if a backward reads it at all. Unless told,
    /// it makes again what is cheap to make: results of norms, activations, gated(), scale(),
    /// rotary positions of those, and operators that say so.
    LayerValue keep(LayerValue x);
    /// Returns x, which selective recomputation makes again, if what it is made from is there then:
    /// kept for a backward, or made again at low cost. Refuses products and attention.
    LayerValue recompute(LayerValue x);
    /// Share of the bytes kept without recomputation that selective recomputation may keep of the
    /// values made from here on, from 0 to 1. Besides what is cheap it makes those values again,
    /// products and heads of attention among them, that cost least per byte, until the rest is
    /// within the share; what keep() names stays. 1: what is cheap alone. (The name is PyTorch's.)
    void activation_memory_budget(double share);

    struct Access;  ///< for the library

protected:
    [[nodiscard]] std::string full_name(const std::string& name) const;

    GraphRecord& record_;                ///< of what the functions make
    std::shared_ptr<LayerGraph*> self_;  ///< of all its values
};

/// LayerGraph::add() of both. Throws UsageError for values of a layer that is complete.
[[nodiscard]] LayerValue operator+(const LayerValue& a, const LayerValue& b);

}  // namespace vocabpipe
