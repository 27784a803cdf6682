// SPDX-License-Identifier: Apache-2.0
// Rows of data/published_truth.csv as questions to `plan`.
#include "benchmarks/csv_rows.hpp"
#include "benchmarks/published_runs.hpp"
#include "benchmarks/published_steps.hpp"
#include "src/support/text_layout.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace vocabpipe {

namespace {

/// A row that `plan` has no candidate for.
struct LeftOut {
    std::string reason;
};

/// Microbatches and tokens per sequence assumed where a publication gives none.
constexpr int64_t kSixMicrobatches = 32, kSixLength = 4096;

constexpr double kSmallA100 = 39.5;  // GiB, as nvidia-smi reports

bool has(const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
}

int64_t number(const CsvRow& row, const char* column, int64_t otherwise) {
    const std::string& text = row[column];
    return text.empty() ? otherwise : std::llround(std::stod(text));
}
int64_t number(const CsvRow& row, const char* column) {
    if (row[column].empty()) throw LeftOut{std::string("no ") + column};
    return number(row, column, 0);
}

/// The kernels that the row names; else those of its card's and its trainer's time.
KernelYear kernels_of(const CsvRow& row) {
    const std::string& note = row["note"];
    if (has(note, "kernel=flash_attention2")) return KernelYear::y2023;
    if (has(note, "kernel=")) return KernelYear::y2022;
    const std::string& source = row["source"];
    if (has(source, "llm-foundry")) return KernelYear::y2023;
    if (!row["gpu"].starts_with("A100")) return KernelYear::y2025;
    return row["precision"] == "fp16" ? KernelYear::y2022 : KernelYear::y2023;
}

ModelConfig model_of(const CsvRow& row) {
    ModelConfig config;
    const int64_t hidden = number(row, "hidden"), ffn = number(row, "ffn");
    const int64_t heads = number(row, "heads", hidden / (hidden % 128 == 0 ? 128 : 96));
    const int64_t groups = number(row, "kv_heads", heads);
    const int64_t experts = number(row, "experts", 0);
    // Gated feed-forward parts are narrower than those of a GPT, or experts.
    const bool gated = ffn != 4 * hidden;
    set_family(config, experts > 0       ? "qwen3_moe"
                       : gated           ? "llama"
                       : groups == heads ? "gpt2"
                                         : "starcoder2");
    config.num_layers = static_cast<int>(number(row, "layers"));
    config.hidden_size = hidden;
    config.ffn_hidden_size = ffn;
    config.num_attention_heads = heads;
    config.num_query_groups = groups;
    config.max_position_embeddings = number(row, "seq", kSixLength);
    config.vocab_size = number(row, "vocab");
    config.tied = false;
    if (experts > 0) {
        config.moe.experts = experts;
        config.moe.top_k = number(row, "topk");
        config.moe.ffn_hidden_size = ffn;
    }
    return config;
}

/// [stage] The layers of contiguous stages of which the largest has least parameters, where tables
/// of the vocabulary count like the layers of as many parameters, as DeepSpeed-like pipelines cut.
std::vector<int> cut_by_parameters(const ModelConfig& config, int stages) {
    const auto h = static_cast<double>(config.hidden_size);
    const double of_layer =
        2 * h * h +
        2 * h * h * static_cast<double>(config.kv_heads()) /
            static_cast<double>(config.num_attention_heads) +
        (config.gated ? 3 : 2) * h * static_cast<double>(config.ffn_hidden_size);
    const double table = h * static_cast<double>(config.vocab_size) / of_layer;  // in layers
    const auto cut = [&](double most) {
        std::vector<int> layers;
        int left = config.num_layers;
        for (int stage = 0; stage < stages; ++stage) {
            const double taken = (stage == 0 ? table : 0) + (stage + 1 == stages ? table : 0);
            const int fit = std::max(0, static_cast<int>(std::floor(most - taken + 1e-9)));
            layers.push_back(stage + 1 == stages ? left : std::min(fit, left));
            if (stage + 1 == stages && left > fit) return std::vector<int>();
            left -= layers.back();
        }
        return layers;
    };
    for (double most = 1;; most += 0.01) {
        if (std::vector<int> layers = cut(most); !layers.empty()) return layers;
    }
}

PlanOptions options_of(const CsvRow& row, const Devices& devices) {
    PlanOptions options;
    const std::string& gpu = row["gpu"];
    const bool a100 = gpu.starts_with("A100"), h100 = gpu.starts_with("H100");
    const bool mi300x = gpu == "MI300X";
    if (!a100 && !h100 && !mi300x && !gpu.starts_with("H200")) throw LeftOut{"GPU " + gpu};
    options.device = mi300x ? load_device(VOCABPIPE_MI300X)
                            : devices(a100   ? "a100"
                                      : h100 ? "h100"
                                             : "h200");
    if (gpu.ends_with("40GB")) options.memory_gib = kSmallA100;
    options.model = {.name = row["model"], .config = model_of(row)};
    // Six schedules on one workload, whose size is not given; 32 microbatches fit.
    const bool six = mi300x && row["seq"].empty();
    options.seq_length = six ? kSixLength : number(row, "seq");
    options.gpus = static_cast<int>(number(row, "gpus"));
    options.global_batch_size = six ? kSixMicrobatches : number(row, "gbs");
    options.tensor = {static_cast<int>(number(row, "tp"))};
    options.context = {static_cast<int>(number(row, "cp", 1))};
    options.pipeline = {static_cast<int>(number(row, "pp"))};
    options.data = {static_cast<int>(number(row, "dp"))};
    options.expert = {static_cast<int>(number(row, "ep", 1))};
    options.micro_batch_sizes = {number(row, "mbs", 1)};
    // The paper of 2021 tuned its microbatches and gives their range (2104.04473, section 5).
    if (row["mbs"].empty() && kernels_of(row) == KernelYear::y2022) {
        options.micro_batch_sizes.clear();
        const int64_t of_replica = options.global_batch_size / options.data.front();
        for (const int64_t size : {1, 2, 4, 8}) {
            if (of_replica % size == 0) options.micro_batch_sizes.push_back(size);
        }
    }
    options.vocab_modes = {VocabMode::none};
    const int64_t chunks = number(row, "vp", 0);
    const bool straight = chunks == 1 || row["schedule"] == "1f1b" || options.pipeline[0] == 1;
    if (straight) {
        options.schedules = {"1f1b"};
    } else {
        options.schedules = {"interleaved"};
        options.chunks = {static_cast<int>(chunks)};
        if (chunks == 0) options.chunks = {2, 3, 4};
    }
    if (six) {
        const std::string& name = row["schedule"];
        options.schedules = {name.substr(0, name.find(' '))};
        options.evaluation = Evaluation::simulation;
    }
    const std::string& recompute = row["recompute"];
    options.recompute = {recompute.starts_with("full")        ? Recompute::full
                         : recompute.starts_with("selective") ? Recompute::selective
                                                              : Recompute::none};
    PlannedTrainer& trainer = options.trainer;
    trainer.kernels = kernels_of(row);
    trainer.fp8 = row["precision"].starts_with("FP8");
    trainer.recompute_layers = 1;
    // Megatron and DeepSpeed overlap messages of interleaved schedules only.
    trainer.overlap_messages = !straight;
    const std::string& shared = row["sp"];
    trainer.sequence_parallel = shared == "1" || has(recompute, "sp") ||
                                (shared.empty() && trainer.kernels == KernelYear::y2025);
    trainer.zero = row["zero"] == "0" ? 0 : 1;
    const bool gathers = row["zero"] == "fsdp";
    if (gathers && has(row["source"], "torchtitan")) {
        throw LeftOut{"recomputation by a list of operators"};
    }
    if (gathers) {  // layer by layer
        trainer.zero = 3;
        options.schedules = {"interleaved"};
        options.chunks = {static_cast<int>(number(row, "layers"))};
    }
    const bool named_kernel = has(row["note"], "kernel=");
    // Gradients in fp32 of 13B parameters on one GPU would not have fit where this trainer's did.
    if (named_kernel) trainer.gradients = DType::bf16;
    trainer.parallel_loss = !named_kernel;  // nor would a whole loss explain where it ran out
    if (named_kernel && straight) {
        options.layers_per_stage = cut_by_parameters(options.model.config, options.pipeline[0]);
    }
    options.sensitivity_rows = 0;
    // Trainers post a receive when they are about to wait for it.
    options.receive_ahead = 1;
    if (!six && !gathers) options.evaluation = Evaluation::pass_times;
    return options;
}

/// FLOPs of a step as Megatron-LM counts them, with the square of attention and, where the
/// published rate says so, full recomputation (Narayanan et al. 2021, appendix).
double megatron_flops(const CsvRow& row) {
    const auto value = [&](const char* column) { return static_cast<double>(number(row, column)); };
    const double h = value("hidden"), s = value("seq"), l = value("layers"), v = value("vocab");
    const bool recomputes = row["recompute"].starts_with("full");
    return (recomputes ? 96 : 72) * value("gbs") * s * l * h * h *
           (1 + s / (6 * h) + v / ((recomputes ? 16 : 12) * l * h));
}

std::optional<double> seconds_of(const CsvRow& row) {
    if (row["outcome"] != "ok") return std::nullopt;
    if (!row["step_s"].empty()) return std::stod(row["step_s"]);
    const double gpus = static_cast<double>(number(row, "gpus"));
    if (!row["tokens_s_gpu"].empty()) {
        return static_cast<double>(number(row, "gbs", kSixMicrobatches) *
                                   number(row, "seq", kSixLength)) /
               (std::stod(row["tokens_s_gpu"]) * gpus);
    }
    if (row["tflops_gpu"].empty()) throw LeftOut{"no time"};
    return megatron_flops(row) / (std::stod(row["tflops_gpu"]) * 1e12 * gpus);
}

/// "Hagemann", "NVIDIA/dgxc-benchmarking": the first word, without what follows.
std::string short_source(const std::string& source) {
    return source.substr(0, source.find_first_of(" ,"));
}

PublishedRun run_of(const CsvRow& row, bool held_out, const Devices& devices) {
    PublishedRun run{.options = options_of(row, devices), .step_seconds = seconds_of(row)};
    const std::string& note = row["note"];
    std::string kernel = row["precision"];
    if (const size_t at = note.find("kernel="); at != std::string::npos) {
        kernel = note.substr(at + 7, note.find(';', at) - at - 7);
        if (row["sp"] == "1") kernel += " sp";
    }
    run.group = row["gpu"].substr(0, row["gpu"].find('-')) + " " + short_source(row["source"]) +
                " " + kernel;
    for (const char* column : {"model", "gpus", "seq", "gbs"}) run.cell += row[column] + " ";
    run.cell += run.group;
    if (!row["peak_mem_gb"].empty()) run.memory_gib = std::stod(row["peak_mem_gb"]);
    run.held_out = held_out;
    return run;
}

}  // namespace

PlanRow predict(const PublishedRun& run) {
    return make_plan(run.options).rows.front();
}

Prediction compare(const PublishedRun& run, const PlanRow& predicted) {
    return {.cell = run.cell,
            .predicted = static_cast<double>(predicted.step_ns) * 1e-9,
            .measured = run.step_seconds.value_or(0),
            .fits = predicted.fits(),
            .predicted_gib = static_cast<double>(predicted.worst.total()) / (1 << 30),
            .measured_gib = run.memory_gib.value_or(0)};
}

PublishedRuns read_published_runs(const std::string& path, const Devices& devices) {
    PublishedRuns result;
    bool odd = false;
    if (CsvFile file(path); !file.has("source")) {
        for (const PublishedStep& step : read_published_steps(path)) {
            PublishedRun run{.group = "A100 vocabulary paper, " + step.group(),
                             .cell = std::to_string(step.gpus) + " " + step.schedule + " " +
                                     std::to_string(step.seq_length) + " " +
                                     std::to_string(step.vocab),
                             .options = step.plan(devices("a100"))};
            if (step.measured) {
                run.step_seconds = step.measured->step_ms * 1e-3;
                run.memory_gib = step.measured->memory_gib;
            }
            odd = !odd;
            run.held_out = !odd;
            result.runs.push_back(std::move(run));
        }
        return result;
    }
    CsvFile file(path);
    while (const std::optional<CsvRow> row = file.next()) {
        odd = !odd;
        try {
            result.runs.push_back(run_of(*row, !odd, devices));
        } catch (const LeftOut& left) {
            ++result.left_out[left.reason];
        } catch (const std::logic_error&) {  // of std::stod and the like
            throw InputFileError(file.place() + ": not a number");
        }
    }
    return result;
}

}  // namespace vocabpipe
