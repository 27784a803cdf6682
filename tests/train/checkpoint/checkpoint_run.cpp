// SPDX-License-Identifier: Apache-2.0
#include "tests/train/checkpoint/checkpoint_run.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "src/train/checkpoint/checkpoint_folder.hpp"
#include "vocabpipe/world.hpp"

namespace vocabpipe::testing {

CheckpointRun::CheckpointRun() {
    std::vector<uint16_t> tokens(4000);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>(i * i % 61);
    write_file(folder_ / "tokens.bin", std::string(reinterpret_cast<const char*>(tokens.data()),
                                                   tokens.size() * sizeof(uint16_t)));
}

TrainOptions CheckpointRun::options() const {
    TrainOptions o;
    o.model.num_layers = 4;
    o.model.hidden_size = 32;
    o.model.ffn_hidden_size = 48;
    o.model.num_attention_heads = 2;
    o.model.seq_length = o.model.max_position_embeddings = 16;
    o.model.vocab_size = 61;
    o.data.path = {folder_ / "tokens.bin"};
    o.data.format = "raw-u16";
    o.global_batch_size = 6;
    o.train_iters = 6;
    o.lr = 1e-2;
    o.lr_warmup_iters = 2;
    o.threads_per_rank = 1;
    o.log_interval = 1000;
    o.ranks_are_threads = true;
    return o;
}

std::vector<std::string> CheckpointRun::run(int ranks, TrainOptions options) const {
    if (options.metrics.empty()) {
        options.metrics = folder_ / "metrics.jsonl";
        std::filesystem::remove(options.metrics);  // a run that is resumed would go on with it
    }
    World::threads(ranks, {.timeout_seconds = 60}).run([&](Communicator& communicator) {
        train(communicator, options);
    });
    std::istringstream lines(read_file(options.metrics));
    std::vector<std::string> steps;
    for (std::string line; std::getline(lines, line);) {
        const nlohmann::json step = nlohmann::json::parse(line);
        if (step.contains("eval_seconds")) continue;
        steps.push_back(step.at("step").dump() + " " + step.at("loss").dump() + " " +
                        step.at("grad_norm").dump() + " " + step.at("lr").dump());
    }
    return steps;
}

std::vector<std::string> CheckpointRun::run_and_leave_step_3(int ranks, TrainOptions options,
                                                             const std::string& folder) const {
    options.save = path(folder);
    options.save_interval = 3;
    std::filesystem::remove_all(options.save);
    std::vector<std::string> curve = run(ranks, options);
    std::filesystem::remove_all(step_folder(options.save, 6));
    return curve;
}

std::vector<std::string> CheckpointRun::resume(int ranks, TrainOptions options,
                                               const std::string& folder) const {
    options.load = path(folder);
    return run(ranks, std::move(options));
}

std::vector<double> CheckpointRun::losses(const std::vector<std::string>& curve) {
    std::vector<double> losses;
    for (const std::string& step : curve) {
        losses.push_back(std::stod(step.substr(step.find(' ') + 1)));
    }
    return losses;
}

std::map<std::string, std::string> contents(const std::string& folder) {
    std::map<std::string, std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
        const std::string name = std::filesystem::relative(entry.path(), folder);
        found[name] = entry.is_regular_file() ? read_file(entry.path()) : "a folder";
    }
    return found;
}

}  // namespace vocabpipe::testing
