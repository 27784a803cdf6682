// SPDX-License-Identifier: Apache-2.0
// Models of every family of whose files one key or one tensor was changed, against what
// transformers computes of them (change_models.py made the table): the same, or a refusal.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "src/train/checkpoint/load_checkpoint.hpp"
#include "tests/support/full_run.hpp"
#include "tests/support/pipeline_run.hpp"
#include "tests/train/checkpoint/raw_safetensors.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/trained_rank.hpp"

namespace vocabpipe::testing {
namespace {

using nlohmann::json;

// As change_models.py has them.
constexpr int kSequences = 2, kLength = 20;

uint32_t zlib_crc32(const std::string& text) {
    uint32_t crc = 0xFFFFFFFF;
    for (const char c : text) {
        crc ^= static_cast<unsigned char>(c);
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320U : 0U);
    }
    return ~crc;
}

/// weight() of change_models.py.
std::vector<float> weight(const std::string& name, const std::vector<int64_t>& shape) {
    const bool norm =
        name.find("norm") != std::string::npos || name.find("ln_") != std::string::npos;
    uint32_t state = zlib_crc32(name);
    std::vector<float> values(static_cast<size_t>(
        std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>())));
    for (float& value : values) {
        state = state * 1664525 + 1013904223;
        value = static_cast<float>(state >> 20) / 4096.0F - 0.5F + (norm ? 1.0F : 0.0F);
    }
    return values;
}

struct Model {
    json config;
    std::map<std::string, std::pair<std::vector<int64_t>, std::vector<float>>> tensors;
};

Model model_of(const json& row) {
    Model model{.config = row.at("config"), .tensors = {}};
    for (const auto& [name, shape] : row.at("tensors").items()) {
        const auto sizes = shape.get<std::vector<int64_t>>();
        model.tensors[name] = {sizes, weight(name, sizes)};
    }
    return model;
}

/// [[key, ...], new value], or [[key, ...]] without it.
void change_key(json& config, const json& change) {
    json* inner = &config;
    const json& path = change.at(0);
    for (size_t i = 0; i + 1 < path.size(); ++i) inner = &inner->at(path[i].get<std::string>());
    const auto key = path.back().get<std::string>();
    if (change.size() == 1) {
        inner->erase(key);
    } else {
        (*inner)[key] = change.at(1);
    }
}

void change_tensor(Model& model, const json& change) {
    const auto what = change.at(0).get<std::string>();
    const auto name = change.at(1).get<std::string>();
    if (what == "add") {
        model.tensors[name] = {{4}, {0, 0, 0, 0}};
        return;
    }
    auto& [shape, values] = model.tensors.at(name);
    if (what == "values") {
        values = weight(name + " changed", shape);
    } else if (what == "shape") {
        const int64_t row = static_cast<int64_t>(values.size()) / shape.front();
        values.insert(values.end(), values.begin(), values.begin() + row);
        ++shape.front();
    } else {
        if (what == "rename") model.tensors[name + ".other"] = model.tensors.at(name);
        model.tensors.erase(name);
    }
}

void write(const Model& model, const std::string& folder) {
    std::vector<RawTensor> tensors;
    for (const auto& [name, tensor] : model.tensors) {
        tensors.push_back({name, "F32", json(tensor.first).dump(), float_bytes(tensor.second)});
    }
    std::filesystem::create_directories(folder);
    write_file(folder + "/model.safetensors", raw_safetensors(tensors));
    write_file(folder + "/config.json", model.config.dump());
}

Batch tokens(int64_t vocab_size) {
    Batch batch{.sequences = 1,
                .seq_length = kLength,
                .tokens = {},
                .labels = {},
                .loss_gradient = {},
                .counted_tokens = kSequences * kLength};
    for (int64_t s = 0; s < kSequences; ++s) {
        std::vector<int32_t> row;
        for (int64_t i = 0; i <= kLength; ++i) {
            row.push_back(static_cast<int32_t>((7 * s + 11 * i * i + 3 * i) % vocab_size));
        }
        batch.tokens.emplace_back(row.begin(), row.end() - 1);
        batch.labels.emplace_back(row.begin() + 1, row.end());
        batch.loss_gradient.emplace_back(kLength, 1.0F / (kSequences * kLength));
    }
    return batch;
}

double loss_of(const std::string& folder) {
    const Checkpoint checkpoint(find_checkpoint(folder, true));
    checkpoint.verify();
    ModelConfig config = checkpoint.config();
    config.seq_length = kLength;
    config.check();
    const Schedule schedule = make_schedule("1f1b", {.ranks = 1,
                                                     .microbatches = kSequences,
                                                     .vocab_mode = VocabMode::none,
                                                     .vocab_size = config.vocab_size});
    const StepPlan plan = plan_step(config, even_partition(config, schedule, 1), schedule,
                                    TableCosts::uniform(1, schedule.stages, 1000, 2000, 500));
    const Batch batch = tokens(config.vocab_size);
    double loss = 0;
    World::threads(1).run([&](Communicator& communicator) {
        const std::unique_ptr<Device> device = make_host_device();
        TrainedRank rank(communicator, *device, plan, {.initialise = false});
        checkpoint.fill(rank.model(), rank.context());
        rank.run(batch.microbatches());
        for (const double of_microbatch : rank.output()->losses()) loss += of_microbatch;
    });
    return loss;
}

/// What the library makes of the folder: a loss, or the refusal's text.
struct Outcome {
    std::optional<double> loss;
    std::string refusal;
};
Outcome outcome_of(const std::string& folder) {
    try {
        return {.loss = loss_of(folder), .refusal = {}};
    } catch (const Error& error) {
        if (error.exit_code() != ExitCode::input_file && error.exit_code() != ExitCode::usage) {
            throw;
        }
        return {.loss = {}, .refusal = error.what()};
    }
}

bool equal(double a, double b) {
    return std::abs(a - b) <= 2e-6 * std::abs(b);
}

class ChangedModels : public ::testing::TestWithParam<std::string> {
protected:
    ChangedModels() {
        std::ifstream file(VOCABPIPE_CHANGED_MODELS);
        row_ = json::parse(file).at(GetParam());
    }
    TempFolder folder_;
    json row_;
};

TEST_P(ChangedModels, ComputeWhatTransformersDoesOrAreRefused) {
    const bool full = full_run();
    const double unchanged = row_.at("loss").get<double>();
    write(model_of(row_), folder_ / "m");
    ASSERT_TRUE(equal(loss_of(folder_ / "m"), unchanged)) << loss_of(folder_ / "m");
    const json& changes = row_.at("changes");
    // Another third of them in every family.
    for (size_t i = full ? 0 : zlib_crc32(GetParam()) % 3; i < changes.size(); i += full ? 1 : 3) {
        const json& change = changes[i].at(1);
        SCOPED_TRACE(change.dump());
        Model model = model_of(row_);
        const bool of_key = changes[i].at(0) == "key";
        if (of_key) {
            change_key(model.config, change);
        } else {
            change_tensor(model, change);
        }
        write(model, folder_ / "m");
        const Outcome found = outcome_of(folder_ / "m");
        const json& theirs = changes[i].at(2);
        if (!found.loss) {
            // By the name of a key or tensor, or of what it decides.
            EXPECT_NE(found.refusal.find(folder_ / "m"), std::string::npos) << found.refusal;
        } else if (theirs.is_number()) {
            EXPECT_TRUE(equal(*found.loss, theirs.get<double>())) << *found.loss << " " << theirs;
        } else {
            // transformers checks the types of keys that change nothing; null is as good as absent.
            EXPECT_TRUE(of_key) << "a loss of " << *found.loss;
            double allowed = unchanged;
            if (of_key && change.size() == 2 && change[1].is_null()) {
                for (const json& other : changes) {
                    if (other.at(1).size() != 1 || other.at(1).at(0) != change.at(0)) continue;
                    if (other.at(2).is_number()) allowed = other.at(2).get<double>();
                }
            }
            EXPECT_TRUE(equal(*found.loss, allowed)) << *found.loss << ", unchanged " << unchanged;
        }
    }
}

std::vector<std::string> families() {
    std::ifstream file(VOCABPIPE_CHANGED_MODELS);
    const json all = json::parse(file);
    std::vector<std::string> names;
    for (const auto& [name, row] : all.items()) names.push_back(name);
    return names;
}

INSTANTIATE_TEST_SUITE_P(EveryFamily, ChangedModels, ::testing::ValuesIn(families()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace vocabpipe::testing
