// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/published_steps.hpp"

#include "benchmarks/csv_rows.hpp"
#include "vocabpipe/error.hpp"

#include <stdexcept>

namespace vocabpipe {

namespace {

PublishedStep parse(const CsvRow& row) {
    PublishedStep step{.schedule = row["schedule"],
                       .mode = vocab_mode_from(row["vocab_mode"]),
                       .gpus = std::stoi(row["gpus"]),
                       .seq_length = std::stoll(row["seq"]),
                       .vocab = std::stoll(row["vocab"]),
                       .hidden = std::stoll(row["hidden"]),
                       .heads = std::stoll(row["heads"]),
                       .layers = std::stoi(row["layers"])};
    if (!row["iter_ms"].empty()) {
        step.measured = {.mfu_percent = std::stod(row["mfu_pct"]),
                         .step_ms = std::stod(row["iter_ms"]),
                         .memory_gib = std::stod(row["peak_mem_gib"])};
    }
    return step;
}

}  // namespace

std::string PublishedStep::group() const {
    return schedule + (sharded(mode) ? " sharded" : " whole");
}

PlanOptions PublishedStep::plan(const DeviceSpec& a100) const {
    PlanOptions options;
    options.device = a100;
    options.device.reserve_gib.value = 0;
    options.model = {.name = "gpt",
                     .config = {.num_layers = layers,
                                .hidden_size = hidden,
                                .ffn_hidden_size = 4 * hidden,
                                .num_attention_heads = heads,
                                .max_position_embeddings = seq_length,
                                .vocab_size = vocab,
                                .tied = false}};
    options.gpus = gpus;
    options.seq_length = seq_length;
    options.global_batch_size = 128;
    options.schedules = {schedule};
    options.vocab_modes = {mode};
    options.sensitivity_rows = 0;
    options.trainer.kernels = KernelYear::y2023;
    // The published 1F1B is Megatron-LM's, which posts a receive just before it waits for it
    // (p2p_communication.py); the published V-Half posts it a pass earlier if it can.
    if (schedule == "1f1b") {
        options.receive_ahead = 1;
        options.trainer.overlap_messages = false;
    }
    return options;
}

PlanRow PublishedStep::predict(const DeviceSpec& a100) const {
    return make_plan(plan(a100)).rows.front();
}

double PublishedStep::time_ratio(const PlanRow& predicted) const {
    return static_cast<double>(predicted.step_ns) * 1e-6 / measured->step_ms;
}

double PublishedStep::memory_ratio(const PlanRow& predicted) const {
    return static_cast<double>(predicted.worst.total()) / (1 << 30) / measured->memory_gib;
}

std::vector<PublishedStep> read_published_steps(const std::string& path) {
    CsvFile file(path);
    std::vector<PublishedStep> steps;
    while (const std::optional<CsvRow> row = file.next()) {
        try {
            steps.push_back(parse(*row));
        } catch (const std::logic_error&) {  // of std::stod and the like
            throw InputFileError(file.place() + ": not a number");
        }
    }
    return steps;
}

}  // namespace vocabpipe
