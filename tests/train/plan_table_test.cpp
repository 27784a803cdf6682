// SPDX-License-Identifier: Apache-2.0
#include "src/train/plan/plan_table.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace vocabpipe {
namespace {

TrainOptions small_run() {
    TrainOptions options;
    options.model.num_layers = 4;
    options.model.hidden_size = options.model.ffn_hidden_size = 32;
    options.model.num_attention_heads = 4;
    options.model.seq_length = options.model.max_position_embeddings = 16;
    options.model.vocab_size = 101;
    options.global_batch_size = 8;
    options.threads_per_rank = 1;
    return options;
}

/// The warning of a run whose rank i is on hosts[i].
std::string warning(const std::vector<std::string>& hosts, int tensor, int context = 1) {
    TrainOptions options = small_run();
    options.tensor_model_parallel_size = tensor;
    options.context_parallel_size = context;
    std::vector<RankPlacement> placements;
    for (const std::string& host : hosts) placements.push_back({.host = host, .cores = 2});
    return teams_across_hosts(TrainingPlan(options, placements));
}

TEST(TeamsAcrossHosts, AreNoneWhereNeighborsShareAHost) {
    EXPECT_EQ(warning({"a", "b", "c", "d"}, 1), "");
    EXPECT_EQ(warning({"a", "a", "b", "b"}, 2), "");
    EXPECT_EQ(warning({"a", "a", "a", "a"}, 4), "");
}

TEST(TeamsAcrossHosts, AreNamedWithTheFirstOfThem) {
    EXPECT_EQ(warning({"a", "a", "a", "b"}, 2),
              "warning: --tensor-model-parallel-size 2: ranks 2-3 share a stage across the hosts a "
              "and b; every layer waits for the network: place neighboring ranks on one host");
    EXPECT_EQ(warning({"a", "b", "a", "b"}, 2),
              "warning: --tensor-model-parallel-size 2: ranks 0-1 share a stage across the hosts a "
              "and b (and 1 more such stage); every layer waits for the network: place neighboring "
              "ranks on one host");
    EXPECT_EQ(warning({"a", "b", "c", "a"}, 4),
              "warning: --tensor-model-parallel-size 4: ranks 0-3 share a stage across the hosts a "
              "and b, and others; every layer waits for the network: place neighboring ranks on "
              "one host");
}

TEST(TeamsAcrossHosts, OfContextRanksIncludeTheirTensorRanks) {
    EXPECT_EQ(warning({"a", "a", "b", "b"}, 1, 2), "");
    EXPECT_EQ(warning({"a", "a", "b", "b"}, 2, 2),
              "warning: --tensor-model-parallel-size 2, --context-parallel-size 2: ranks 0-3 share "
              "sequences across the hosts a and b; every layer waits for the network: place "
              "neighboring ranks on one host");
}

TEST(TeamsAcrossHosts, OfExpertRanksNameBothNumbers) {
    TrainOptions options = small_run();
    set_family(options.model, "mixtral");
    options.model.tied = false;
    options.model.moe = {.experts = 4, .top_k = 2};
    options.pipeline_model_parallel_size = 1;
    options.expert_model_parallel_size = options.expert_tensor_parallel_size = 2;
    const std::vector<RankPlacement> placements{{.host = "a", .cores = 2},
                                                {.host = "a", .cores = 2},
                                                {.host = "b", .cores = 2},
                                                {.host = "b", .cores = 2}};
    EXPECT_EQ(teams_across_hosts(TrainingPlan(options, placements)),
              "warning: --expert-model-parallel-size 2, --expert-tensor-parallel-size 2: ranks 0-3 "
              "share the experts of a stage across the hosts a and b; every layer waits for the "
              "network: place neighboring ranks on one host");
}

TEST(TrainingPlans, ExchangeBetweenContextRanksInTheFormOfTheFlag) {
    TrainOptions options = small_run();
    options.context_parallel_size = 2;
    const std::vector<RankPlacement> placements(2, {.host = "a", .cores = 2});
    for (const ContextForm form : {ContextForm::allgather, ContextForm::a2a}) {
        options.context_form = form;
        const TrainingPlan plan(options, placements);
        EXPECT_EQ(plan.partition().context_exchange.form, form);
        EXPECT_EQ(plan.partition().context_exchange.panels, ContextExchange().panels);
    }
}

std::string shared(RankPlacement placement, int threads) {
    TrainOptions options = small_run();
    options.threads_per_rank = threads;
    placement.host = "a";
    const std::vector<RankPlacement> placements(static_cast<size_t>(placement.ranks_sharing),
                                                placement);
    return ranks_that_share_cores(TrainingPlan(options, placements));
}

TEST(SharedCores, AreNamedWhereThreadsOutnumberThem) {
    EXPECT_EQ(shared({.cores = 2, .ranks_sharing = 2}, 1), "");
    EXPECT_EQ(shared({.cores = 4, .ranks_sharing = 1}, 4), "");
    EXPECT_EQ(shared({.cores = 2, .ranks_sharing = 4}, 1),
              "warning: 4 ranks x 1 thread have 2 cores of a: they take turns; start fewer ranks "
              "on a host");
    EXPECT_EQ(shared({.cores = 1, .ranks_sharing = 1}, 2),
              "warning: 1 rank x 2 threads have 1 core of a: they take turns; lower "
              "--threads-per-rank");
    EXPECT_EQ(shared({.cores = 1, .ranks_sharing = 4, .memory = Device::Memory{}}, 1), "")
        << "the device computes";
}

}  // namespace
}  // namespace vocabpipe
