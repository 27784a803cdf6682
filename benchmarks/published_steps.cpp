// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/published_steps.hpp"

#include "vocabpipe/error.hpp"

#include <fstream>
#include <sstream>

namespace vocabpipe {

namespace {

std::vector<std::string> cells(const std::string& line) {
    std::vector<std::string> result;
    std::istringstream in(line + ',');
    for (std::string cell; std::getline(in, cell, ',');) result.push_back(cell);
    return result;
}

PublishedStep parse(const std::vector<std::string>& text) {
    PublishedStep step{.schedule = text[0],
                       .mode = vocab_mode_from(text[1]),
                       .gpus = std::stoi(text[2]),
                       .seq_length = std::stoll(text[3]),
                       .vocab = std::stoll(text[4]),
                       .hidden = std::stoll(text[5]),
                       .heads = std::stoll(text[6]),
                       .layers = std::stoi(text[7])};
    if (!text[9].empty()) {
        step.measured = {.mfu_percent = std::stod(text[8]),
                         .step_ms = std::stod(text[9]),
                         .memory_gib = std::stod(text[10])};
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
    // The published 1F1B is Megatron-LM's, which posts a receive just before it waits for it
    // (p2p_communication.py); the published V-Half posts it a pass earlier if it can.
    if (schedule == "1f1b") options.receive_ahead = 1;
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
    std::ifstream in(path);
    if (!in) throw InputFileError(path + ": cannot be read");
    std::vector<PublishedStep> steps;
    int number = 0;
    for (std::string line; std::getline(in, line);) {
        ++number;
        if (line.starts_with('#') || line.starts_with("schedule,")) continue;
        const std::vector<std::string> text = cells(line);
        constexpr size_t kCells = 11;
        if (text.size() != kCells) {
            throw InputFileError(path + ":" + std::to_string(number) + ": has " +
                                 std::to_string(text.size()) + " cells, expected 11");
        }
        try {
            steps.push_back(parse(text));
        } catch (const std::logic_error&) {  // of std::stod and the like
            throw InputFileError(path + ":" + std::to_string(number) + ": not a number");
        }
    }
    return steps;
}

}  // namespace vocabpipe
