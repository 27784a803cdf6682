// SPDX-License-Identifier: Apache-2.0
// One training step, optimizer included, against the rate of plain matrix products of the model's
// shapes in the same process.
//
//     bench_step [--num-layers 12 --hidden-size 768 ... --dtype fp32,bf16 --threads-per-rank 2]
//     bench_step --model llama-124m
//     bench_step --device cuda --model gpt2-1.5b [--untimed-products]
//
// On GPUs the products run with the fastest of cuBLASLt's algorithms, from a file in the user's
// cache folder; missing shapes are timed once, after separate steps, and added. Model FLOPs of a
// step = 3 * tokens * (2 per weight of a matrix + attention, counted half). step: by the host's
// clock. device: from the first action's begin to the last one's end, on GPUs by their clock; there
// a line says which code computed (cuda_counters). aim: goal for the ratio of medians, if one is
// set.
#include "benchmarks/timed_steps.hpp"
#include "src/tool/launch/devices.hpp"
#include "vocabpipe/error.hpp"

#ifdef VOCABPIPE_WITH_CUDA
#include "benchmarks/print_note.hpp"
#include "kernels/cuda/product_choices.hpp"
#include "src/tool/train/product_cache.hpp"
#include "vocabpipe/context.hpp"
#include "vocabpipe/cuda/counters.hpp"
#endif

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace vocabpipe;

/// GPT-2 as published; the other families on a body of GPT-2's width and depth, with three query
/// heads per key-value head and Llama 2's vocabulary, untied: also 124 M parameters. Heads of 64.
/// On GPUs sequences of 1024 and microbatches that fill 80 GB, enough of them that the optimizer's
/// share is as in training; on the host 4 x 64 tokens.
struct Preset {
    const char* name;
    const char* family;
    int layers;
    int64_t hidden, ffn, heads, groups, vocab;
    int64_t micro_batch_size;
    int microbatches;
    double aim;  ///< model FLOP/s over the GEMM rate on a GPU in bf16; 0: none
};
constexpr std::array kPresets{
    Preset{"gpt2-124m", "gpt2", 12, 768, 3072, 12, 12, 50257, 16, 4, 0},
    Preset{"gpt2-1.5b", "gpt2", 48, 1600, 6400, 25, 25, 50257, 8, 4, 0.55},
    Preset{"llama-124m", "llama", 12, 768, 2048, 12, 4, 32000, 16, 4, 0},
    Preset{"qwen2-124m", "qwen2", 12, 768, 2048, 12, 4, 32000, 16, 4, 0},
    Preset{"qwen3-124m", "qwen3", 12, 768, 2048, 12, 4, 32000, 16, 4, 0},
    Preset{"gemma2-124m", "gemma2", 12, 768, 2048, 12, 4, 32000, 16, 4, 0},
};

struct Options {
    bench::StepCase which;
    std::vector<std::string> dtypes{"fp32", "bf16"};
    std::string device = "host";
    std::string preset;
    bool untie = false;
    bool untimed_products = false;
    bool nondeterministic_attention = false;
    std::string json;
};

void add_flags(CLI::App& app, Options& o) {
    ModelConfig& m = o.which.model;
    std::vector<std::string> names;
    for (const Preset& preset : kPresets) names.emplace_back(preset.name);
    app.add_option("--device", o.device)
        ->check(CLI::IsMember({"host", "cuda"}))
        ->capture_default_str();
    app.add_option("--model", o.preset, "Family and sizes; other flags win")
        ->check(CLI::IsMember(names));
    app.add_option("--num-layers", m.num_layers)->capture_default_str();
    app.add_option("--hidden-size", m.hidden_size)->capture_default_str();
    app.add_option("--num-attention-heads", m.num_attention_heads)->capture_default_str();
    app.add_option("--seq-length", m.seq_length)->capture_default_str();
    app.add_option("--vocab-size", m.vocab_size)->capture_default_str();
    app.add_option("--micro-batch-size", o.which.micro_batch_size)->capture_default_str();
    app.add_option("--microbatches", o.which.microbatches)->capture_default_str();
    app.add_option("--threads-per-rank", o.which.threads)->capture_default_str();
    app.add_option("--steps", o.which.steps)->check(CLI::PositiveNumber)->capture_default_str();
    app.add_option("--dtype", o.dtypes, "Both on the host, bf16 on GPUs")
        ->delimiter(',')
        ->check(CLI::IsMember({"fp32", "bf16"}));
    app.add_flag("--untie-embeddings-and-output-weights", o.untie);
    app.add_flag("--untimed-products", o.untimed_products,
                 "On GPUs: let the steps' products run with the first algorithm of cuBLASLt's "
                 "heuristic, not with the fastest");
    app.add_flag("--nondeterministic-attention", o.nondeterministic_attention,
                 "On GPUs: let cuDNN's gradients of attention differ in their last bits from call "
                 "to call");
    app.add_option("--json", o.json, "Also write the table as JSON lines");
}

/// Sets the options that were not given, by the preset and the device.
void fill_in(const CLI::App& app, Options& o) {
    ModelConfig& m = o.which.model;
    std::string family = "gpt2";
    int64_t ffn = 4 * m.hidden_size;
    for (const Preset& preset : kPresets) {
        if (o.preset != preset.name) continue;
        const auto set = [&](const char* flag, auto& value, auto preset_value) {
            if (app.count(flag) == 0) value = preset_value;
        };
        set("--num-layers", m.num_layers, preset.layers);
        set("--hidden-size", m.hidden_size, preset.hidden);
        set("--num-attention-heads", m.num_attention_heads, preset.heads);
        set("--vocab-size", m.vocab_size, preset.vocab);
        ffn = preset.ffn * m.hidden_size / preset.hidden;
        const int64_t heads_in_group = preset.heads / preset.groups;
        if (m.num_attention_heads % heads_in_group == 0) {
            m.num_query_groups = m.num_attention_heads / heads_in_group;
        }
        family = preset.family;
        if (family != "gpt2") o.untie = true;
        if (o.device != "cuda") continue;
        set("--seq-length", m.seq_length, 1024);
        set("--micro-batch-size", o.which.micro_batch_size, preset.micro_batch_size);
        set("--microbatches", o.which.microbatches, preset.microbatches);
    }
    if (o.device == "cuda" && app.count("--dtype") == 0) o.dtypes = {"bf16"};
    m.ffn_hidden_size = ffn;
    m.sliding_window = std::max<int64_t>(m.seq_length / 2, 1);  // half of Gemma's shortest context
    set_family(m, family);
    m.max_position_embeddings = m.seq_length;
    m.tied = !o.untie;
}

std::string aim(const Options& o) {
    for (const Preset& preset : kPresets) {
        if (o.preset != preset.name || o.device != "cuda" || preset.aim == 0) continue;
        if (o.which.model.dtype != DType::bf16) continue;
        std::array<char, 16> text{};
        std::snprintf(text.data(), text.size(), "%.2f", preset.aim);
        return text.data();
    }
    return "-";
}

using OpenDevice = std::function<std::unique_ptr<Device>(GpuOptions)>;

#ifdef VOCABPIPE_WITH_CUDA
/// Times steps with timed products. Replaces the open `device` by the one that runs them.
bench::StepTiming time_with_cache(Communicator& communicator, std::unique_ptr<Device>& device,
                                  const OpenDevice& open_device, const bench::StepCase& which) {
    const tool::ProductCache cache(kernels::cuda::name_of_gpu(), bench::print_note);
    const auto reopen = [&](const kernels::cuda::ProductChoices& choices) {
        device.reset();
        device = open_device({.product_choices = choices.text()});
    };
    kernels::cuda::ProductChoices known = cache.read();
    reopen(known);
    bench::StepCase first = which;
    const bool only_shapes = known.size() == 0;  // these steps serve only to find the shapes
    if (only_shapes) first.warmup = 0;
    if (only_shapes) first.steps = 1;
    bench::StepTiming timing = bench::time_steps(communicator, *device, first);
    const auto products = [&] {
        Context ctx(device->context(1, {}));
        return cache.complete(ctx, std::move(known));
    }();
    if (only_shapes || products.timed > 0) {
        reopen(products.choices);
        timing = bench::time_steps(communicator, *device, which);
    }
    bench::print_note(products.line());
    return timing;
}
#endif

bench::StepTiming time_steps(const Options& o, Communicator& communicator,
                             std::unique_ptr<Device>& device,
                             [[maybe_unused]] const OpenDevice& open_device) {
#ifdef VOCABPIPE_WITH_CUDA
    if (device->asynchronous() && !o.untimed_products) {
        return time_with_cache(communicator, device, open_device, o.which);
    }
#endif
    return bench::time_steps(communicator, *device, o.which);
}

/// The code that computed the steps; "" on the host.
std::string counts([[maybe_unused]] Device& device) {
#ifdef VOCABPIPE_WITH_CUDA
    if (device.asynchronous()) return describe(cuda_counters(device));
#endif
    return "";
}

bench::ProductTimer product_timer(const Options& o, [[maybe_unused]] Device& device) {
#ifdef VOCABPIPE_WITH_CUDA
    if (o.device == "cuda") return bench::cuda_product_timer(device);
#endif
    return bench::host_product_timer(o.which.threads);
}

int run(Options& o) {
    bench::StepCase& which = o.which;
    ModelConfig& m = which.model;
    m.check();
    if (o.untimed_products && o.device != "cuda") {
        throw UsageError("--untimed-products: needs --device cuda");
    }
    std::FILE* out = nullptr;
    if (!o.json.empty()) {
        out = std::fopen(o.json.c_str(), "w");
        if (out == nullptr) throw OutputFileError("--json " + o.json + ": cannot create the file");
    }
    int wrong_total = 0;
    for (const std::string& dtype : o.dtypes) {
        m.dtype = dtype == "bf16" ? DType::bf16 : DType::fp32;
        bench::StepTiming timing;
        double gemm = 0;
        std::string counted;
        World::threads(1).run([&](Communicator& communicator) {
            const OpenDevice open_device = [&](GpuOptions gpu) {
                gpu.nondeterministic_attention = o.nondeterministic_attention;
                const auto make = tool::device_factory(o.device, /*ranks_are_threads=*/true, gpu);
                return make ? make(RankPlacement{}) : make_host_device();
            };
            std::unique_ptr<Device> device = open_device({});
            if (&dtype == &o.dtypes.front()) {
                std::printf(
                    "# bench_step: %s, %s, %d layers, hidden %lld, %lld heads, V %lld, %lld x %lld "
                    "tokens, %d microbatches",
                    device->name().c_str(), m.family.c_str(), m.num_layers,
                    static_cast<long long>(m.hidden_size),
                    static_cast<long long>(m.num_attention_heads),
                    static_cast<long long>(m.vocab_size),
                    static_cast<long long>(which.micro_batch_size),
                    static_cast<long long>(m.seq_length), which.microbatches);
                if (!device->asynchronous()) std::printf(", %d threads", which.threads);
                std::printf("\n# %6s %12s %12s %12s %12s %12s %8s %8s %6s %7s\n", "dtype", "step",
                            "device", "tokens/s", "model", "gemm", "ratio", "ratio", "aim",
                            "#wrong");
                std::printf("# %6s %12s %12s %12s %12s %12s %8s %8s %6s %7s\n", "", "ms", "ms", "",
                            "GFLOP/s", "GFLOP/s", "median", "best", "", "");
                std::fflush(stdout);
            }
            timing = time_steps(o, communicator, device, open_device);
            counted = counts(*device);
            // A new one: after a step, the device keeps the stream and workspace of its last
            // action.
            device.reset();
            device = open_device({});
            gemm = bench::gemm_rate(which, *device, product_timer(o, *device));
        });
        const double rate = timing.flops / timing.median_seconds;
        const double tokens =
            static_cast<double>(which.micro_batch_size * m.seq_length * which.microbatches);
        // With random weights, the first loss is close to log V.
        const bool right =
            std::abs(timing.first_loss / std::log(static_cast<double>(m.vocab_size)) - 1) <= 0.1;
        wrong_total += right ? 0 : 1;
        std::printf("  %6s %12.1f %12.1f %12.1f %12.1f %12.1f %8.3f %8.3f %6s %7d\n", dtype.c_str(),
                    timing.median_seconds * 1e3, timing.device_seconds * 1e3,
                    tokens / timing.median_seconds, rate * 1e-9, gemm * 1e-9, rate / gemm,
                    timing.flops / timing.fastest_seconds / gemm, aim(o).c_str(), right ? 0 : 1);
        if (!counted.empty()) std::printf("# %s\n", counted.c_str());
        std::fflush(stdout);
        if (out != nullptr) {
            std::fprintf(out, "%s\n",
                         nlohmann::json{{"dtype", dtype},
                                        {"step_seconds", timing.median_seconds},
                                        {"mean_step_seconds", timing.mean_seconds},
                                        {"device_seconds", timing.device_seconds},
                                        {"model_flops_per_second", rate},
                                        {"gemm_flops_per_second", gemm},
                                        {"ratio", rate / gemm}}
                             .dump()
                             .c_str());
        }
    }
    if (out != nullptr) std::fclose(out);
    std::printf("# wrong: %d\n", wrong_total);
    return wrong_total;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    ModelConfig& m = options.which.model;
    m.num_layers = 12;
    m.hidden_size = 768;
    m.num_attention_heads = 12;
    m.seq_length = 64;
    m.vocab_size = 50257;
    options.which.micro_batch_size = 4;
    options.which.threads = 2;
    CLI::App app("Training step of one rank against the GEMM rate (defaults: GPT-2 124M, 4 x 64)");
    add_flags(app, options);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
    }
    fill_in(app, options);
    try {
        return run(options) == 0 ? 0 : static_cast<int>(ExitCode::failed);
    } catch (const Error& error) {
        std::fprintf(stderr, "bench_step: error: %s\n", error.what());
        return static_cast<int>(error.exit_code());
    }
}
