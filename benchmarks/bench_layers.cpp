// SPDX-License-Identifier: Apache-2.0
// What do layers cost that are written as their forward alone (ModelConfig::layer_forward), and a
// model that is one function (ModelConfig::model_forward), against the same layers of the library?
//
//   bench_layers [--families gpt2,llama] [--hidden-size 512] [--num-layers 2] [--seq-length 512]
//                [--dtype fp32,bf16] [--threads 1] [--rounds 15] [--memory-budgets 1,0.5,0]
//
// One process runs the passes of a stage of both in turn. The table has the medians of the rounds
// in milliseconds, and the median of the rounds' ratios. #wrong counts passes whose bits differ.
//
// With --memory-budgets it compares instead what selective recomputation keeps within such budgets
// (LayerGraph::activation_memory_budget()), and what R takes, with no recomputation and with a full
// one: F, R and B of the written layers.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/median.hpp"
#include "benchmarks/random_tensor.hpp"
#include "benchmarks/written_layers.hpp"
#include "vocabpipe/context.hpp"
#include "vocabpipe/device.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/layer_graph.hpp"
#include "vocabpipe/model_rank.hpp"

namespace {

using namespace vocabpipe;

struct Options {
    std::vector<std::string> families{"gpt2", "llama"};
    std::vector<std::string> dtypes{"fp32", "bf16"};
    int64_t hidden = 512, seq_length = 512;
    int layers = 2, threads = 1, rounds = 15;
    std::vector<double> budgets;
};

/// A stage with all layers of a model, and memory for its passes over one microbatch.
class TimedStage {
public:
    TimedStage(const ModelConfig& config, int threads, Recompute recompute = Recompute::none)
        : device_(make_host_device()),
          context_({.threads = threads, .poll = {}}),
          model_(config,
                 {.layers_per_stage = {config.num_layers},
                  .threads_per_rank = threads,
                  .recompute = recompute},
                 alone(config), 0, *device_),
          stage_(*model_.modules().stages.front()),
          bytes_(stage_.bytes()),
          tokens_(static_cast<size_t>(config.seq_length)),
          microbatch_{.sequences = 1, .seq_length = config.seq_length, .tokens = tokens_},
          x_(config.seq_length, config.hidden_size, config.dtype),
          dy_(config.seq_length, config.hidden_size, config.dtype),
          y_(config.seq_length, config.hidden_size, config.dtype),
          dx_(config.seq_length, config.hidden_size, config.dtype) {
        model_.initialise(context_, 1);
    }

    void forward() { stage_.forward(context_, microbatch_, x_, y_, left(), forward_.span()); }
    void recompute() { stage_.recompute(context_, microbatch_, x_, left(), forward_.span()); }
    void backward() {
        stage_.backward(context_, microbatch_, dy_, x_, left(), dx_, backward_.span(), false);
    }
    void backward_input() {
        stage_.backward_input(context_, microbatch_, dy_, x_, left(), dx_, for_weight_.span(),
                              input_gradient_.span());
    }
    void backward_weight() {
        stage_.backward_weight(context_, microbatch_, x_, left(), for_weight_.span(),
                               weight_gradient_.span(), false);
    }

    /// Before a pass, so that what it does not write is seen.
    void clear() {
        const auto clear = [](Tensor tensor) {
            std::memset(tensor.data, 0, static_cast<size_t>(tensor.bytes()));
        };
        clear(y_);
        clear(dx_);
        for (const Parameter& parameter : stage_.parameters()) clear(parameter.gradient);
    }
    /// Whether all that the last pass made has the same bits.
    [[nodiscard]] bool equals(TimedStage& other) {
        const auto equal = [](ConstTensor a, ConstTensor b) {
            return std::memcmp(a.data, b.data, static_cast<size_t>(a.bytes())) == 0;
        };
        bool all = equal(y_, other.y_) && equal(dx_, other.dx_);
        const auto gradients = by_name(), others = other.by_name();
        for (const auto& [name, gradient] : gradients)
            all = all && equal(gradient, others.at(name));
        return all && gradients.size() == others.size();
    }
    /// Bytes that F leaves, and the largest workspace.
    [[nodiscard]] int64_t saved_bytes() const { return bytes_.saved; }
    /// Bytes that R makes again.
    [[nodiscard]] int64_t recomputed_bytes() const { return bytes_.recomputed; }
    [[nodiscard]] int64_t scratch_bytes() const {
        return std::max(bytes_.forward_workspace, bytes_.backward_workspace);
    }

private:
    static Schedule alone(const ModelConfig& config) {
        Schedule schedule{.ranks = 1, .stages = 1, .microbatches = 1, .rank_of_stage = {0}};
        schedule.input = schedule.output = ShardMap::whole(config.vocab_size, 1, 0);
        return schedule;
    }
    /// Gradients by the names that they have in the library's model; in a model of one function
    /// these follow the prefix of a layer.
    [[nodiscard]] std::map<std::string, ConstTensor> by_name() {
        std::map<std::string, ConstTensor> gradients;
        for (const Parameter& parameter : stage_.parameters()) {
            const std::string root = parameter.name.substr(0, parameter.name.find('.') + 1);
            gradients[parameter.name.substr(parameter.name.rfind(root))] = parameter.gradient;
        }
        return gradients;
    }
    static RandomTensor memory(int64_t bytes) { return {1, bytes / 4 + 1, DType::fp32}; }
    [[nodiscard]] Activations left() {
        return {.saved = saved_.span(), .recomputed = recomputed_.span()};
    }

    std::unique_ptr<Device> device_;
    Context context_;
    ModelRank model_;
    StageModule& stage_;
    StageBytes bytes_;
    std::vector<int32_t> tokens_;
    Microbatch microbatch_;
    RandomTensor x_, dy_, y_, dx_;
    RandomTensor saved_ = memory(bytes_.saved), for_weight_ = memory(bytes_.for_weight);
    RandomTensor recomputed_ = memory(bytes_.recomputed);
    RandomTensor forward_ = memory(bytes_.forward_workspace);
    RandomTensor backward_ = memory(bytes_.backward_workspace);
    RandomTensor input_gradient_ = memory(bytes_.input_gradient_workspace);
    RandomTensor weight_gradient_ = memory(bytes_.weight_gradient_workspace);
};

double milliseconds(const std::function<void()>& run) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
        .count();
}

ModelConfig config_of(const Options& options, const std::string& family, const std::string& dtype) {
    ModelConfig config{.num_layers = options.layers,
                       .hidden_size = options.hidden,
                       .ffn_hidden_size = 4 * options.hidden,
                       .num_attention_heads = options.hidden / 64,
                       .seq_length = options.seq_length,
                       .max_position_embeddings = options.seq_length,
                       .vocab_size = 128,
                       .dtype = dtype == "bf16" ? DType::bf16 : DType::fp32};
    set_family(config, family);
    return config;
}

/// Prints the rows of one family and returns the number of wrong ones.
int compare(const Options& options, const std::string& family, const std::string& dtype) {
    const ModelConfig config = config_of(options, family, dtype);
    TimedStage library(config, options.threads);
    TimedStage written(with_written_layers(config), options.threads);
    TimedStage model(as_written_model(config), options.threads);
    const std::vector<std::pair<const char*, void (TimedStage::*)()>> passes{
        {"F", &TimedStage::forward},
        {"B", &TimedStage::backward},
        {"I", &TimedStage::backward_input},
        {"W", &TimedStage::backward_weight}};
    int wrong = 0;
    for (const auto& [name, pass] : passes) {
        std::vector<double> of_library, of_written, of_model, ratios, model_ratios;
        for (TimedStage* const stage : {&library, &written, &model}) stage->clear();
        for (int round = -2; round < options.rounds; ++round) {
            const double a = milliseconds([&] { (library.*pass)(); });
            const double b = milliseconds([&] { (written.*pass)(); });
            const double c = milliseconds([&] { (model.*pass)(); });
            if (round < 0) continue;
            of_library.push_back(a);
            of_written.push_back(b);
            of_model.push_back(c);
            ratios.push_back(b / a);
            model_ratios.push_back(c / a);
        }
        const int differs = (library.equals(written) ? 0 : 1) + (library.equals(model) ? 0 : 1);
        wrong += differs;
        std::printf("%-12s %-5s %-5s %12.3f %12.3f %8.3f %12.3f %8.3f %7d\n", family.c_str(),
                    dtype.c_str(), name, bench::median(of_library), bench::median(of_written),
                    bench::median(ratios), bench::median(of_model), bench::median(model_ratios),
                    differs);
        std::fflush(stdout);
    }
    const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
    std::printf("# %-10s %-5s MiB kept by F %.1f %.1f %.1f, of scratch %.1f %.1f %.1f\n",
                family.c_str(), dtype.c_str(), mib(library.saved_bytes()),
                mib(written.saved_bytes()), mib(model.saved_bytes()), mib(library.scratch_bytes()),
                mib(written.scratch_bytes()), mib(model.scratch_bytes()));
    return wrong;
}

/// The same for memory budgets.
int compare_budgets(const Options& options, const std::string& family, const std::string& dtype) {
    const ModelConfig config = with_written_layers(config_of(options, family, dtype));
    struct Way {
        std::string name;
        std::unique_ptr<TimedStage> stage;
        bool recomputes = true;
        std::vector<double> ratios, of_r;
    };
    std::vector<Way> ways;
    const auto add = [&](const std::string& name, const ModelConfig& of, Recompute recompute) {
        ways.push_back({.name = name,
                        .stage = std::make_unique<TimedStage>(of, options.threads, recompute),
                        .recomputes = recompute != Recompute::none});
    };
    add("none", config, Recompute::none);
    for (const double share : options.budgets) {
        ModelConfig within = config;
        within.layer_forward = [share, whole = config.layer_forward](LayerGraph& g, LayerValue x) {
            g.activation_memory_budget(share);
            return whole(g, std::move(x));
        };
        std::array<char, 32> name;
        std::snprintf(name.data(), name.size(), "%g", share);
        add(name.data(), within, Recompute::selective);
    }
    add("full", config, Recompute::full);
    for (int round = -2; round < options.rounds; ++round) {
        double none = 0;
        for (Way& way : ways) {
            const double forward = milliseconds([&] { way.stage->forward(); });
            const double again = way.recomputes ? milliseconds([&] { way.stage->recompute(); }) : 0;
            const double all = forward + again + milliseconds([&] { way.stage->backward(); });
            if (!way.recomputes) none = all;
            if (round < 0) continue;
            way.ratios.push_back(all / none);
            way.of_r.push_back(again);
        }
    }
    int wrong = 0;
    const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
    for (Way& way : ways) {
        const int differs = way.stage->equals(*ways.front().stage) ? 0 : 1;
        wrong += differs;
        const int64_t kept =
            way.stage->saved_bytes() + (way.recomputes ? 0 : way.stage->recomputed_bytes());
        std::printf("%-12s %-5s %6s %9.2f %9.2f %9.3f %8.3f %7d\n", family.c_str(), dtype.c_str(),
                    way.name.c_str(), mib(kept),
                    mib(way.recomputes ? way.stage->recomputed_bytes() : 0),
                    bench::median(way.of_r), bench::median(way.ratios), differs);
        std::fflush(stdout);
    }
    return wrong;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app("Layers that are written as their forward, against the library's");
    app.add_option("--families", options.families)->delimiter(',');
    app.add_option("--dtype", options.dtypes)
        ->delimiter(',')
        ->check(CLI::IsMember({"fp32", "bf16"}));
    app.add_option("--hidden-size", options.hidden)->check(CLI::Range(64, 1 << 16));
    app.add_option("--num-layers", options.layers)->check(CLI::Range(1, 100));
    app.add_option("--seq-length", options.seq_length)->check(CLI::Range(1, 1 << 20));
    app.add_option("--threads", options.threads)->check(CLI::Range(1, 1024));
    app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 10000));
    app.add_option("--memory-budgets", options.budgets)
        ->delimiter(',')
        ->check(CLI::Range(0.0, 1.0));
    CLI11_PARSE(app, argc, argv);
    std::printf("# h = %lld, %d layers, %lld tokens, %d threads, %d rounds\n",
                static_cast<long long>(options.hidden), options.layers,
                static_cast<long long>(options.seq_length), options.threads, options.rounds);
    const bool budgets = !options.budgets.empty();
    if (budgets) {
        std::printf("# %-10s %-5s %6s %9s %9s %9s %8s %7s\n", "family", "dtype", "budget",
                    "MiB_kept", "MiB_again", "R_ms", "ratio", "#wrong");
    } else {
        std::printf("# %-10s %-5s %-5s %12s %12s %8s %12s %8s %7s\n", "family", "dtype", "pass",
                    "library_ms", "written_ms", "ratio", "model_ms", "ratio", "#wrong");
    }
    int wrong = 0;
    try {
        for (const std::string& family : options.families) {
            for (const std::string& dtype : options.dtypes)
                wrong += (budgets ? compare_budgets : compare)(options, family, dtype);
        }
    } catch (const Error& error) {
        std::fprintf(stderr, "bench_layers: error: %s\n", error.what());
        return static_cast<int>(error.exit_code());
    }
    std::printf("# wrong: %d\n", wrong);
    return wrong == 0 ? 0 : 1;
}
