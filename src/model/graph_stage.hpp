// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/graph/model_record.hpp"
#include "src/model/blocks/graph/planned_graph.hpp"
#include "src/model/blocks/graph/result_memory.hpp"
#include "src/model/parameter_rows.hpp"
#include "src/model/rotary_tables.hpp"
#include "vocabpipe/device.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/operators.hpp"
#include "vocabpipe/recompute.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe {

/// How a model of the user's is cut.
struct GraphCut {
    std::vector<int> layers_per_stage;
    int64_t sequences = 1;  ///< per microbatch
    int threads = 1;        ///< of the host's operators; workspaces depend on it
    Recompute recompute = Recompute::none;
};

/// The tensors that the stages give each other.
[[nodiscard]] std::vector<StageTensor> stage_tensors(const ModelConfig& config,
                                                     const GraphCut& cut);

/// The weights that its layers share.
[[nodiscard]] std::vector<SharedWeight> shared_weights(const ModelConfig& config,
                                                       const GraphCut& cut);

/// All parameters of a stage, in the order that GraphStage expects.
[[nodiscard]] std::vector<ParameterRows> graph_stage_parameters(const ModelConfig& config,
                                                                const GraphCut& cut, int stage);

/// A stage of a ModelConfig::model_forward. It is planned as one: there is no boundary between its
/// layers. A full recomputation keeps its inputs and nothing else.
class GraphStage final : public StageModule {
public:
    /// `parameters`: this stage's part of a ParameterStore. `device` is where losses are added up.
    /// Both, and `rotary`, may be empty where only bytes() is asked for.
    GraphStage(const ModelConfig& config, const GraphCut& cut, int stage,
               const kernels::Operators& operators, std::span<Parameter> parameters,
               const RotaryTables* rotary, Device* device);

    [[nodiscard]] StageBytes bytes() const override;
    [[nodiscard]] std::span<Parameter> parameters() override { return parameters_; }
    void begin_step(int microbatches) override;
    [[nodiscard]] std::span<const double> losses() const override;
    [[nodiscard]] ConstTensor result(const std::string& name) const override {
        return results_.all(name);
    }
    /// Bytes that the results of a microbatch keep.
    [[nodiscard]] int64_t result_bytes() const { return results_.bytes(); }
    void forward(Context& ctx, const Microbatch& microbatch, ConstTensor x, Tensor y,
                 Activations activations, Bytes workspace) override;
    void recompute(Context& ctx, const Microbatch& microbatch, ConstTensor x,
                   Activations activations, Bytes workspace) override;
    void backward(Context& ctx, const Microbatch& microbatch, ConstTensor dy, ConstTensor x,
                  Activations activations, Tensor dx, Bytes workspace, bool accumulate) override;
    void backward_input(Context& ctx, const Microbatch& microbatch, ConstTensor dy, ConstTensor x,
                        Activations activations, Tensor dx, Bytes for_weight,
                        Bytes workspace) override;
    void backward_weight(Context& ctx, const Microbatch& microbatch, ConstTensor x,
                         Activations activations, Bytes for_weight, Bytes workspace,
                         bool accumulate) override;

private:
    class Ends;

    GraphStage(const ModelConfig& config, const GraphCut& cut, int stage,
               const kernels::Operators& operators, std::span<Parameter> parameters,
               const RotaryTables* rotary, Device* device, StageGraph part);
    [[nodiscard]] PlannedGraph::Saved saved_views(Views& saved, Views& recomputed) const;
    [[nodiscard]] PlannedGraph::Saved saved_views(Activations activations) const;
    [[nodiscard]] PlannedGraph::Gradients gradient_views(Views& memory) const;
    [[nodiscard]] Scratch scratch_views(Views& memory, const ScratchSize& size) const;
    [[nodiscard]] TokenViews by_sequence(Views& memory) const {
        return {memory, sequences_, dtype_};
    }
    /// Throws Error for a microbatch of other sizes.
    [[nodiscard]] StagePass begin_pass(Context& ctx, const Microbatch& microbatch, Bytes workspace,
                                       const ScratchSize& size) const;

    int64_t sequences_;
    int64_t seq_length_;
    DType dtype_;
    Recompute recompute_;
    std::span<Parameter> parameters_;
    const RotaryTables* rotary_;
    Device* device_;
    bool reads_x_ = false;   ///< the first input is x
    bool makes_y_ = false;   ///< the last output is y
    size_t inputs_ = 0;      ///< of other stages
    size_t outputs_ = 0;     ///< for other stages
    size_t read_later_ = 0;  ///< inputs that later stages read, too
    bool has_loss_ = false;
    ResultMemory results_;
    PlannedGraph graph_;
    ScratchSize scratch_;        ///< of F, R, I and W
    ScratchSize whole_scratch_;  ///< of B
    DeviceMemory losses_;        ///< doubles, [microbatch]
    DeviceMemory zeros_;         ///< on the host: initial values of losses_
    size_t microbatches_ = 0;
};

}  // namespace vocabpipe
