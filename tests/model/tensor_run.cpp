// SPDX-License-Identifier: Apache-2.0
#include "tests/model/tensor_run.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <type_traits>

#include "kernels/host/operators.hpp"
#include "kernels/reference/elements.hpp"
#include "src/model/parameters.hpp"
#include "src/model/predicting_stage.hpp"
#include "src/model/rotary_tables.hpp"
#include "src/model/transformer_stage.hpp"
#include "tests/model/teams_of_threads.hpp"

namespace vocabpipe::testing {

namespace {

constexpr int kMicrobatches = 2;

std::vector<StageLayers> three_stages(const ModelConfig& config) {
    return {{.first = 0,
             .count = 1,
             .embedding = config.learned_positions || config.embedding_scale != 1},
            {.first = 1, .count = 0},
            {.first = 1,
             .count = config.num_layers - 1,
             .final_norm = true,
             .depths = config.mtp_num_layers}};
}

/// Own rows of random (N, h).
std::vector<float> own_rows(const TensorRun& run, int rank, unsigned seed) {
    const int64_t n = run.sequences * run.config.seq_length;
    const int64_t h = run.config.hidden_size;
    const std::vector<float> all = random_values(n * h, seed, 1);
    return {all.begin() + n * rank / run.ranks * h, all.begin() + n * (rank + 1) / run.ranks * h};
}

/// Parameters of all stages as the rank holds them, with memory.
class RankParameters {
public:
    RankParameters(const TensorRun& run, int rank, Device& device) {
        const std::vector<LogicalParameter> logical = logical_parameters(run.config);
        for (const StageLayers& stage : three_stages(run.config)) {
            counts.push_back(0);
            for (const ParameterRows& rows : stage_parameters(run.config, stage)) {
                const LogicalParameter& of = logical[static_cast<size_t>(rows.id)];
                add(of, tensor_shard(of, {.rank = rank, .ranks = run.ranks}), run.config.dtype,
                    device, static_cast<unsigned>(rows.id));
                ++counts.back();
            }
        }
    }
    std::vector<Parameter> all;
    std::vector<size_t> counts;  ///< [stage]

private:
    void add(const LogicalParameter& of, const TensorShard& shard, DType type, Device& device,
             unsigned seed) {
        std::vector<float> whole = random_values(of.rows * of.cols, 100 + seed, 0.25F);
        if (of.init_std == 0) {
            for (float& value : whole) value += of.init_constant;
        }
        std::vector<float> held;
        for (const TensorShard::Range& rows : shard.rows) {
            for (int64_t row = rows.first; row < rows.first + rows.count; ++row) {
                for (const TensorShard::Range& columns : shard.columns) {
                    const auto begin = whole.begin() + row * of.cols + columns.first;
                    held.insert(held.end(), begin, begin + columns.count);
                }
            }
        }
        const int64_t rows = shard.row_count(), cols = shard.column_count();
        memory_.emplace_back(device, rows * cols * size_of(type));
        const Tensor weight(memory_.back().bytes().data(), rows, cols, type);
        write(weight, held);
        memory_.emplace_back(device, rows * cols * size_of(DType::fp32));
        const Tensor gradient(memory_.back().bytes().data(), rows, cols, DType::fp32);
        Parameter parameter;
        parameter.name = of.name;
        parameter.weight = weight;
        parameter.gradient = gradient;
        all.push_back(parameter);
    }
    std::vector<Poisoned> memory_;
};

/// What one stage keeps of one microbatch.
struct Kept {
    Poisoned y, saved, recomputed;
};

/// One rank's stages.
class Rank {
public:
    Rank(const TensorRun& run, int rank, TileLink* link)
        : run_(run),
          rank_(rank),
          parameters_(run, rank, *device_),
          rotary_(*device_, run.config, ContextCut(run.config.seq_length), "a test"),
          rows_(run.sequences * run.config.seq_length / run.ranks),
          boundary_bytes_(rows_ * run.config.hidden_size * size_of(run.config.dtype)),
          ctx_({.threads = 1,
                .poll =
                    [link] {
                        if (link != nullptr) link->poll();
                    },
                .operators = &device_->operators()}) {
        ctx_.set_link(Axis::tensor, link);
        std::span<Parameter> rest = parameters_.all;
        const std::vector<StageLayers> stages = three_stages(run.config);
        for (size_t s = 0; s < stages.size(); ++s) {
            const StageOptions options{.layers = stages[s],
                                       .sequences = run.sequences,
                                       .recompute = run.recompute,
                                       .tensor = {.rank = rank, .ranks = run.ranks},
                                       .tensor_pieces = run.pieces};
            const auto add = [&]<typename Stage>(std::type_identity<Stage>) {
                stages_.push_back(std::make_unique<Stage>(run.config, options, device_->operators(),
                                                          rest.first(parameters_.counts[s]),
                                                          &rotary_));
            };
            if (stages[s].depths > 0) {
                add(std::type_identity<PredictingStage>());
            } else {
                add(std::type_identity<TransformerStage>());
            }
            rest = rest.subspan(parameters_.counts[s]);
        }
    }

    RankResults results() {
        for (int j = 0; j < kMicrobatches; ++j) run_microbatch(j);
        for (const Parameter& p : parameters_.all) {
            const float* const values = p.gradient.as<float>();
            results_.gradients.emplace_back(values, values + p.gradient.size());
        }
        return std::move(results_);
    }

private:
    [[nodiscard]] Tensor rows(const Poisoned& memory) const {
        const int64_t boundaries = std::ssize(memory.bytes()) / boundary_bytes_;
        return {memory.bytes().data(), boundaries * rows_, run_.config.hidden_size,
                run_.config.dtype};
    }
    /// Whether the stage has depths of multi-token prediction.
    [[nodiscard]] bool predicts(size_t s) const {
        return run_.config.mtp_num_layers > 0 && s + 1 == stages_.size();
    }
    [[nodiscard]] int64_t output_bytes(size_t s) const {
        return boundary_bytes_ * (predicts(s) ? run_.config.predicted_tokens() : 1);
    }
    void keep(const Poisoned& boundary) {
        const Bytes bytes = boundary.bytes();
        results_.boundaries.insert(results_.boundaries.end(), bytes.begin(), bytes.end());
    }
    void run_microbatch(int j) {
        std::vector<int32_t> first_visible;
        Microbatch microbatch{
            .index = j, .sequences = run_.sequences, .seq_length = run_.config.seq_length};
        if (run_.documents) {  // of five tokens
            for (int64_t n = 0; n < microbatch.size(); ++n) {
                first_visible.push_back(static_cast<int32_t>(n % microbatch.seq_length / 5 * 5));
            }
            microbatch.first_visible = first_visible;
        }
        const auto seed = static_cast<unsigned>(10 * j);
        const Poisoned x(*device_, boundary_bytes_);
        write(rows(x), own_rows(run_, rank_, seed + 1));
        std::vector<Kept> kept;
        const auto input = [&](size_t s) { return rows(s == 0 ? x : kept[s - 1].y); };
        for (size_t s = 0; s < stages_.size(); ++s) {
            const StageBytes bytes = stages_[s]->bytes();
            kept.push_back({.y = {*device_, output_bytes(s)},
                            .saved = {*device_, bytes.saved},
                            .recomputed = {*device_, bytes.recomputed}});
            const Tensor embedded = predicts(s) ? rows(x) : Tensor();
            forward(*stages_[s], microbatch, input(s), kept.back(), embedded);
            keep(kept.back().y);
        }
        Poisoned dy(*device_, output_bytes(stages_.size() - 1));
        for (int64_t first = 0; first < rows(dy).rows; first += rows_) {
            write(rows(dy).row_range(first, rows_),
                  own_rows(run_, rank_, seed + 2 + static_cast<unsigned>(first / rows_)));
        }
        for (size_t s = stages_.size(); s-- > 0;) {
            Poisoned dx(*device_, boundary_bytes_), of_embedded(*device_, boundary_bytes_);
            const Tensor embedded_gradient = predicts(s) ? rows(of_embedded) : Tensor();
            backward(*stages_[s], microbatch, dy, input(s), kept[s], embedded_gradient, dx, j > 0);
            if (predicts(s)) keep(of_embedded);
            keep(dx);
            std::swap(dy, dx);
        }
    }
    void forward(StageModule& stage, const Microbatch& microbatch, Tensor x, Kept& kept,
                 Tensor embedded) {
        Poisoned workspace(*device_, stage.bytes().forward_workspace);
        Activations of = activations(kept);
        of.embedded = embedded;
        stage.forward(ctx_, microbatch, x, rows(kept.y), of, workspace.bytes());
        if (run_.recompute == Recompute::none) return;
        const std::vector<std::byte> made = kept.recomputed.copy();
        kept.recomputed.poison();
        workspace.poison();
        stage.recompute(ctx_, microbatch, x, of, workspace.bytes());
        EXPECT_TRUE(kept.recomputed.copy() == made) << "recomputed";
    }
    void backward(StageModule& stage, const Microbatch& microbatch, const Poisoned& dy, Tensor x,
                  Kept& kept, Tensor embedded_gradient, const Poisoned& dx, bool accumulate) {
        const StageBytes bytes = stage.bytes();
        Activations of = activations(kept);
        of.embedded_gradient = embedded_gradient;
        if (!run_.split) {
            const Poisoned workspace(*device_, bytes.backward_workspace);
            stage.backward(ctx_, microbatch, rows(dy), x, of, rows(dx), workspace.bytes(),
                           accumulate);
            return;
        }
        const Poisoned for_weight(*device_, bytes.for_weight);
        const Poisoned of_input(*device_, bytes.input_gradient_workspace);
        stage.backward_input(ctx_, microbatch, rows(dy), x, of, rows(dx), for_weight.bytes(),
                             of_input.bytes());
        const Poisoned of_weight(*device_, bytes.weight_gradient_workspace);
        stage.backward_weight(ctx_, microbatch, x, of, for_weight.bytes(), of_weight.bytes(),
                              accumulate);
    }
    [[nodiscard]] static Activations activations(const Kept& kept) {
        return {.saved = kept.saved.bytes(), .recomputed = kept.recomputed.bytes()};
    }

    const TensorRun& run_;
    int rank_;
    std::unique_ptr<Device> device_ = make_host_device();
    RankParameters parameters_;
    RotaryTables rotary_;
    int64_t rows_;
    int64_t boundary_bytes_;
    Context ctx_;
    std::vector<std::unique_ptr<StageModule>> stages_;
    RankResults results_;
};

}  // namespace

RankResults run_rank(const TensorRun& run, int rank, TileLink* link) {
    return Rank(run, rank, link).results();
}

std::vector<RankResults> run_serially(const TensorRun& run) {
    std::vector<RankResults> results(static_cast<size_t>(run.ranks));
    on_serial_team(run.ranks, [&](int rank, TileLink* link) {
        results[static_cast<size_t>(rank)] = run_rank(run, rank, link);
    });
    return results;
}

std::vector<RankResults> run_with_links(const TensorRun& run) {
    std::vector<RankResults> results(static_cast<size_t>(run.ranks));
    on_linked_team(run.ranks, [&](int rank, TileLink* link) {
        results[static_cast<size_t>(rank)] = run_rank(run, rank, link);
    });
    return results;
}

WholeResults put_together(const TensorRun& run, const std::vector<RankResults>& ranks) {
    WholeResults whole;
    const int64_t h = run.config.hidden_size;
    const int64_t rows = run.sequences * run.config.seq_length / run.ranks;
    const int64_t bytes = rows * h * size_of(run.config.dtype);
    const int64_t boundaries = std::ssize(ranks.front().boundaries) / bytes;
    for (int64_t i = 0; i < boundaries; ++i) {
        whole.names.push_back("boundary " + std::to_string(i));
        std::vector<double>& values = whole.values.emplace_back();
        for (const RankResults& rank : ranks) {
            const ConstTensor part(rank.boundaries.data() + i * bytes, rows, h, run.config.dtype);
            for (int64_t k = 0; k < part.size(); ++k) {
                values.push_back(kernels::reference::get(part, k / h, k % h));
            }
        }
    }
    const std::vector<LogicalParameter> logical = logical_parameters(run.config);
    size_t at = 0;
    for (const StageLayers& stage : three_stages(run.config)) {
        for (const ParameterRows& of : stage_parameters(run.config, stage)) {
            const LogicalParameter& parameter = logical[static_cast<size_t>(of.id)];
            whole.names.push_back(parameter.name);
            std::vector<double>& values = whole.values.emplace_back(
                static_cast<size_t>(parameter.rows * parameter.cols), 0.0);
            for (int rank = 0; rank < run.ranks; ++rank) {
                const TensorShard shard =
                    tensor_shard(parameter, {.rank = rank, .ranks = run.ranks});
                auto from = ranks[static_cast<size_t>(rank)].gradients[at].begin();
                for (const TensorShard::Range& r : shard.rows) {
                    for (int64_t row = r.first; row < r.first + r.count; ++row) {
                        for (const TensorShard::Range& c : shard.columns) {
                            for (int64_t col = c.first; col < c.first + c.count; ++col) {
                                values[static_cast<size_t>(row * parameter.cols + col)] += *from++;
                            }
                        }
                    }
                }
            }
            ++at;
        }
    }
    return whole;
}

}  // namespace vocabpipe::testing
