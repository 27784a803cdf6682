// SPDX-License-Identifier: Apache-2.0
#include "src/tool/schedule/figure_costs.hpp"

#include "src/support/text_layout.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/stage_layout.hpp"
#include "vocabpipe/with_recomputation.hpp"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <utility>

namespace vocabpipe::tool {

namespace {

int64_t& of(TableCosts::OpCosts& costs, Op op) {
    return costs[static_cast<size_t>(op)];
}

int64_t scaled(double value, double by) {
    return std::llround(value * by);
}
int64_t scaled(int64_t value, double by) {
    return scaled(static_cast<double>(value), by);
}

/// Whether layers and vocabulary are the same for any number of ranks.
bool of_one_model(const FigureOptions& figures) {
    return figures.costs.empty() && !figures.replaced;
}

/// Without --costs: F of a layer, in units.
constexpr int kLayerForward = 12;

/// S, and T, of all vocabulary rows over F of a layer: 3 h V FLOPs per token over 24 h^2 + 2 s h
/// (causal attention; f = 4 h). S and T are two thirds and one third of 6 h V, or half each.
double vocabulary_layers(const FiguredModel& model, int64_t seq_length) {
    return 3.0 * static_cast<double>(model.vocabulary_rows) /
           (24.0 * static_cast<double>(model.hidden_size) + 2.0 * static_cast<double>(seq_length));
}

/// A depth of multi-token prediction costs a layer and a product of 2 h to h columns; in layers.
double depth_in_layers(const FiguredModel& model, int64_t seq_length) {
    const auto h = static_cast<double>(model.hidden_size);
    return 1 + 4 * h / (24 * h + 2 * static_cast<double>(seq_length));
}

StageCosts stage_costs(const FigureOptions& figures, int ranks, int ticks) {
    if (!figures.costs.empty()) return parse_stage_costs(figures.costs, ticks);
    const FiguredModel model = figured_model(figures, ranks);
    const double layer = kLayerForward * ticks;
    const double forward = layer * static_cast<double>(model.layers) / ranks;
    return {.forward = std::max<int64_t>(std::llround(forward), 1),
            .backward = std::max<int64_t>(std::llround(2 * forward), 2),
            .vocabulary = layer * vocabulary_layers(model, figures.seq_length) / ranks};
}

/// "12", "3.33": at most two decimals.
std::string figure_text(double ticks) {
    std::array<char, 32> text;
    std::snprintf(text.data(), text.size(), "%.2f", ticks / kTicksPerUnit);
    std::string figure = text.data();
    if (figure.ends_with(".00")) figure.resize(figure.size() - 3);
    return figure;
}

/// Cost of R, for a stage whose F costs `forward`. Norms and the activation read and write 12 h
/// elements of two bytes per token and layer (f = 4 h), F computes 24 h^2 FLOPs; a device computes
/// about 200 FLOPs in the time of a byte (A100 153, H100 295: dense bf16 over memory bandwidth of
/// their data sheets). Never 0, which stands for all of F.
int64_t selective_cost(int64_t forward, int64_t hidden_size) {
    constexpr double kFlopsPerByte = 200;
    const double part = std::min(1.0, kFlopsPerByte / static_cast<double>(hidden_size));
    return std::max<int64_t>(scaled(forward, part), 1);
}

/// Cost of R after an F of `forward`; 0 for none.
int64_t recompute_cost(int64_t forward, Recompute recompute, int64_t hidden_size) {
    if (recompute == Recompute::none) return 0;
    return recompute == Recompute::full ? forward : selective_cost(forward, hidden_size);
}

}  // namespace

StageCosts parse_stage_costs(const std::string& text, int ticks) {
    constexpr int64_t kMost = int64_t{1} << 36;  // a sixteenth of what make_schedule() allows
    StageCosts costs;
    int64_t vocabulary = 0;
    int used = 0;
    int count = 0;
    if (std::sscanf(text.c_str(), "%" SCNd64 ",%" SCNd64 "%n", &costs.forward, &costs.backward,
                    &used) == 2) {
        count = 2;
        int more = 0;
        if (std::sscanf(text.c_str() + used, ",%" SCNd64 "%n", &vocabulary, &more) == 1) {
            count = 3;
            used += more;
        }
    }
    const auto fits = [](int64_t value) { return value >= 0 && value <= kMost; };
    if (count == 0 || static_cast<size_t>(used) != text.size() || costs.forward < 1 ||
        costs.backward < 1 || !fits(costs.forward) || !fits(costs.backward) || !fits(vocabulary)) {
        throw UsageError("--costs " + text +
                         ": must be F,B or F,B,V in integers from 1 to 2^36 (V from 0), such as "
                         "12,24,4, or a profile file");
    }
    costs.forward *= ticks;
    costs.backward *= ticks;
    costs.vocabulary = static_cast<double>(count == 2 ? costs.forward / 3 : vocabulary * ticks);
    return costs;
}

FiguredModel figured_model(const FigureOptions& figures, int ranks) {
    // GPT-3 175B, whose vocabulary Megatron-LM pads to a multiple of 128.
    constexpr FiguredModel kModel{.layers = 96, .hidden_size = 12288, .vocabulary_rows = 50304};
    FiguredModel model = kModel;
    if (!of_one_model(figures)) {
        model = {.layers = ranks, .hidden_size = 4096, .vocabulary_rows = int64_t{32000} * ranks};
    }
    if (figures.num_layers > 0) model.layers = figures.num_layers;
    if (figures.hidden_size > 0) model.hidden_size = figures.hidden_size;
    if (figures.vocab_size > 0) model.vocabulary_rows = figures.vocab_size;
    return model;
}

ModelConfig figured_layer(const FigureOptions& figures, int ranks) {
    const int64_t hidden = figured_model(figures, ranks).hidden_size;
    return {.num_layers = 1,
            .hidden_size = hidden,
            .ffn_hidden_size = 4 * hidden,
            .num_attention_heads = 1,
            .seq_length = figures.seq_length};
}

std::string costs_text(const FigureOptions& figures, int ranks) {
    const StageCosts costs = stage_costs(figures, ranks, kTicksPerUnit);
    std::string text = "F " + figure_text(static_cast<double>(costs.forward)) + ", B " +
                       figure_text(static_cast<double>(costs.backward)) + ", V " +
                       figure_text(costs.vocabulary);
    if (figures.costs.empty()) {
        const FiguredModel model = figured_model(figures, ranks);
        text +=
            " (" + std::to_string(model.layers) + " layers of F " + std::to_string(kLayerForward) +
            (figures.mtp_num_layers == 0
                 ? ""
                 : ", " + counted(figures.mtp_num_layers, "depth") + " of multi-token prediction") +
            ", hidden size " + std::to_string(model.hidden_size) + ", " +
            std::to_string(model.vocabulary_rows) + " vocabulary rows)";
    }
    if (figures.latency > 0) text += ", latency " + std::to_string(figures.latency);
    if (figures.hop > 0) text += ", hop " + std::to_string(figures.hop);
    if (figures.exchange_percent > 0) {
        text += ", exchange " + std::to_string(figures.exchange_percent) + " %";
    }
    return text;
}

int ticks_per_unit(const FigureOptions& figures) {
    return figures.are_ns || figures.replaced ? 0 : kTicksPerUnit;
}

FigureCosts::FigureCosts(FigureOptions figures, Recompute recompute)
    : figures_(std::move(figures)), recompute_(recompute) {
    if (!figures_.costs.empty()) static_cast<void>(parse_stage_costs(figures_.costs));  // refuses
}

std::vector<int> FigureCosts::layers_per_stage(std::span<const int> rank_of_stage,
                                               VocabMode mode) const {
    if (!figures_.layout.empty()) {
        const StageLayout layout = parse_stage_layout(
            figures_.layout, {.num_layers = figures_.num_layers > 0 ? figures_.num_layers : -1,
                              .mtp_layers = figures_.mtp_num_layers,
                              .vocab_mode = mode});
        if (layout.layers.size() == rank_of_stage.size()) return layout.layers;
        throw UsageError("--pipeline-model-parallel-layout " + figures_.layout + ": has " +
                         std::to_string(layout.layers.size()) + " stages, but the schedule has " +
                         std::to_string(rank_of_stage.size()) + "; both must be equal");
    }
    const bool redistributed = mode == VocabMode::redistributed;
    if (figures_.num_layers == 0) {
        if (!redistributed && figures_.mtp_num_layers == 0) return {};
        if (!of_one_model(figures_)) {
            throw UsageError(
                std::string(redistributed ? "--vocab-mode redistributed" : "--mtp-num-layers") +
                ": requires --num-layers, because the layers that move depend on it");
        }
    }
    const int ranks = 1 + *std::ranges::max_element(rank_of_stage);
    const FiguredModel model = figured_model(figures_, ranks);
    const StageCosts ticks = stage_costs(figures_, ranks, kTicksPerUnit);
    const int64_t again = recompute_cost(ticks.forward, recompute_, model.hidden_size);
    const double output =  // in transformer layers
        2.0 * (1 + figures_.mtp_num_layers) * ticks.vocabulary * static_cast<double>(model.layers) /
        static_cast<double>(ticks.forward + ticks.backward + again);
    return vocabpipe::layers_per_stage(
        static_cast<int>(model.layers), rank_of_stage, mode,
        {.output_layer = output,
         .mtp_layers = figures_.mtp_num_layers * depth_in_layers(model, figures_.seq_length)});
}

StepPrice FigureCosts::price(const Schedule& schedule, const std::vector<int>& layers) const {
    const FigureOptions& figures = figures_;
    const int ticks = std::max(ticks_per_unit(figures), 1);
    const StageCosts costs = stage_costs(figures, schedule.ranks, ticks);
    const FiguredModel model = figured_model(figures, schedule.ranks);
    StepPrice step;
    const int stages = schedule.stages;
    // Costs are per rank's layers, so that schedules with other numbers of stages run the same
    // model.
    const double per_rank =
        layers.empty() ? static_cast<double>(stages) / schedule.ranks
                       : std::accumulate(layers.begin(), layers.end(), 0.0) / schedule.ranks;
    const int64_t tokens = figures.seq_length * figures.micro_batch_size;
    constexpr int64_t kMostElements = int64_t{1} << 40;  // of a boundary: more than any memory
    if (tokens > kMostElements / model.hidden_size) {
        throw UsageError("--seq-length " + std::to_string(figures.seq_length) +
                         " with --micro-batch-size " + std::to_string(figures.micro_batch_size) +
                         " and --hidden-size " + std::to_string(model.hidden_size) +
                         ": their product must be at most 2^40");
    }
    constexpr int64_t kBytes = 2;  // bf16
    const int64_t row = tokens * model.hidden_size * kBytes;
    step.sizes.tokens = tokens;
    step.sizes.predicted_tokens = 1 + figures.mtp_num_layers;
    step.sizes.hidden = model.hidden_size;
    step.sizes.dtype = DType::bf16;
    step.sizes.report_bytes = 64;  // norms and loss: a few numbers
    const int mtp_stage =
        figures.layout.empty() ? stages - 1 : parse_stage_layout(figures.layout).mtp_stage;
    for (int stage = 0; stage < stages; ++stage) {
        const double predicting =
            stage == mtp_stage ? figures.mtp_num_layers * depth_in_layers(model, figures.seq_length)
                               : 0;
        const double own = layers.empty() ? 1 : layers[static_cast<size_t>(stage)] + predicting;
        const double part = own / per_rank;
        const double count =  // layers; equal parts of them if not given
            layers.empty() ? part * static_cast<double>(model.layers) / schedule.ranks
                           : part * per_rank;
        TableCosts::OpCosts pass{};
        of(pass, Op::F) = scaled(costs.forward, part);
        of(pass, Op::B) = scaled(costs.backward, part);
        of(pass, Op::I) = of(pass, Op::B) / 2;
        of(pass, Op::W) = of(pass, Op::B) - of(pass, Op::I);
        of(pass, Op::R) = recompute_cost(of(pass, Op::F), recompute_, model.hidden_size);
        step.costs.stage_ns.push_back(pass);
        // Activations of this library's transformer layer with a feed-forward size of 4 h
        // (docs/memory.md): 8 h + 2 f per token for the backward, of which 2 h + f are outputs of
        // norms and of the activation, and 7 h + f for W.
        step.sizes.stages.push_back({.saved = scaled(16 * row, count),
                                     .for_weight = scaled(11 * row, count) + 2 * row,
                                     .forward_workspace = row,
                                     .backward_workspace = 13 * row,
                                     .input_gradient_workspace = row});
        divide_saved(step.sizes.stages.back(), recompute_, scaled(6 * row, count));
    }
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        TableCosts::OpCosts pass{};
        const auto share = [&](const ShardMap& map) {
            return static_cast<double>(map.rows(rank)) * schedule.ranks /
                   static_cast<double>(map.vocab_size());
        };
        const int predicted = 1 + figures.mtp_num_layers;
        of(pass, Op::S) = of(pass, Op::T) =
            scaled(costs.vocabulary, predicted * share(schedule.output));
        if (schedule.input.rows(rank) > 0) {
            // A rank looks up all tokens, whatever its share of the rows; G adds up the gradients
            // of all depths besides.
            of(pass, Op::E) = static_cast<int64_t>(costs.vocabulary / 4);
            of(pass, Op::G) = (predicted > 1 ? 2 : 1) * of(pass, Op::E);
        }
        step.costs.rank_ns.push_back(pass);
        step.sizes.shards.push_back(
            {.exp_logits = tokens * predicted * schedule.output.rows(rank) * kBytes});
    }
    step.costs.latency_ns = figures.latency * ticks;
    step.costs.exchange_permille = 10 * figures.exchange_percent;
    if (figures.hop > 0) {
        step.costs.bytes_per_ns =
            static_cast<double>(row) / static_cast<double>(figures.hop * ticks);
    }
    step.costs.layers_per_stage = layers.empty() && of_one_model(figures)
                                      ? static_cast<double>(model.layers) / stages
                                      : mean_layers(layers, stages);
    step.order = PassCosts::of(step.costs, step.sizes, schedule);
    return step;
}

}  // namespace vocabpipe::tool
