// SPDX-License-Identifier: Apache-2.0
// Runs with frozen parameters that stop and go on, also with others frozen.
#include "src/model/parameter_groups.hpp"
#include "src/support/safetensors/reader.hpp"
#include "src/train/checkpoint/checkpoint_folder.hpp"
#include "tests/train/checkpoint/checkpoint_run.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::Contains;
using ::testing::Not;
using Curve = std::vector<std::string>;

const char* const kAttention = "transformer.h.1.attn.c_proj.weight";
const char* const kNorm = "transformer.h.1.ln_1.weight";

class ResumeFrozen : public ::testing::Test {
protected:
    /// Six steps in two pipelines, of which norms and biases are trained; saves after every third.
    [[nodiscard]] TrainOptions options(DType dtype, const std::string& folder) const {
        TrainOptions o = runs_.options();
        o.model.dtype = dtype;
        o.vocab_mode = VocabMode::one_barrier;
        o.pipeline_model_parallel_size = 2;
        o.optimizer.groups = {parse_parameter_group("*.bias:lr_mult=1"),
                              parse_parameter_group("*.ln_*:lr_mult=1"),
                              parse_parameter_group("*:freeze")};
        o.save = runs_.path(folder);
        o.save_interval = 3;
        return o;
    }
    /// Goes on from step 3 of a folder, and saves in another.
    [[nodiscard]] Curve resume(TrainOptions o, const std::string& from, const std::string& to,
                               int ranks = 4) const {
        std::filesystem::remove_all(step_folder(runs_.path(from), 6));
        o.load = runs_.path(from);
        o.save = runs_.path(to);
        return runs_.run(ranks, o);
    }
    [[nodiscard]] std::string file(const std::string& folder, int step, const char* name) const {
        return step_folder(runs_.path(folder), step) + "/" + name;
    }
    [[nodiscard]] std::set<std::string> optimizer_tensors(const std::string& folder,
                                                          int step) const {
        std::set<std::string> names;
        const SafetensorsFile state(file(folder, step, "optimizer.safetensors"));
        for (const StoredTensor& t : state.header().tensors) names.insert(t.name);
        return names;
    }
    [[nodiscard]] std::vector<std::byte> weight(const std::string& folder, int step,
                                                const char* name) const {
        const SafetensorsFile weights(file(folder, step, "model.safetensors"));
        const StoredTensor* const found = weights.find(name);
        std::vector<std::byte> bytes(found == nullptr ? 0 : found->end - found->begin);
        if (found != nullptr) weights.open().read(found->begin, bytes);
        return bytes;
    }

    CheckpointRun runs_;
};

Curve last_three(const Curve& curve) {
    return {curve.end() - 3, curve.end()};
}

TEST_F(ResumeFrozen, IsBitExactWithNeverHavingStopped) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        const std::string folder = dtype == DType::fp32 ? "fp32" : "bf16";
        const TrainOptions o = options(dtype, folder);
        const Curve whole = runs_.run(4, o);
        EXPECT_EQ(resume(o, folder, folder + " again"), last_three(whole));
        for (const char* name : {kAttention, kNorm, "transformer.wte.weight"}) {
            const bool moves = name == kNorm;
            EXPECT_FALSE(weight(folder, 3, name).empty());
            EXPECT_EQ(weight(folder, 3, name) != weight(folder + " again", 6, name), moves) << name;
        }
    }
}

TEST_F(ResumeFrozen, KeepsTheOptimizerStateOfTrainedTensorsOnly) {
    const TrainOptions o = options(DType::bf16, "saved");
    (void)runs_.run(4, o);
    const std::set<std::string> names = optimizer_tensors("saved", 3);
    for (const std::string kind : {"exp_avg/", "exp_avg_sq/", "master/"}) {
        EXPECT_THAT(names, Contains(kind + kNorm));
        EXPECT_THAT(names, Not(Contains(kind + kAttention)));
    }
}

TEST_F(ResumeFrozen, MayFreezeOthersAndBeginsMomentsOfTrainedOnesAtZero) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        const std::string folder = dtype == DType::fp32 ? "fp32" : "bf16";
        TrainOptions o = options(dtype, folder);
        const Curve whole = runs_.run(4, o);
        o.optimizer.groups.clear();
        const Curve thawed = resume(o, folder, folder + " thawed");
        ASSERT_EQ(thawed.size(), 3U);
        // The loss of step 4 is made by the weights of step 3; its gradient has more elements.
        EXPECT_EQ(CheckpointRun::losses(thawed)[0], CheckpointRun::losses(whole)[3]);
        EXPECT_NE(thawed[0], whole[3]);
        EXPECT_NE(CheckpointRun::losses(thawed)[2], CheckpointRun::losses(whole)[5]);
        EXPECT_THAT(optimizer_tensors(folder + " thawed", 6),
                    Contains("exp_avg/" + std::string(kAttention)));
        // The other way round: what has moments loses them.
        o.optimizer.groups = {parse_parameter_group("*attn*:freeze")};
        std::filesystem::remove_all(runs_.path("all"));
        TrainOptions all = o;
        all.optimizer.groups.clear();
        all.save = runs_.path("all");
        const Curve trained = runs_.run(4, all);
        const Curve frozen = resume(o, "all", folder + " frozen", 2);
        EXPECT_NEAR(CheckpointRun::losses(frozen)[0], CheckpointRun::losses(trained)[3], 1e-2);
        EXPECT_EQ(weight(folder + " frozen", 6, kAttention), weight("all", 3, kAttention));
        EXPECT_NE(weight(folder + " frozen", 6, kNorm), weight("all", 3, kNorm));
        EXPECT_THAT(optimizer_tensors(folder + " frozen", 6),
                    Not(Contains("exp_avg/" + std::string(kAttention))));
    }
}

}  // namespace
}  // namespace vocabpipe::testing
