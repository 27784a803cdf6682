// SPDX-License-Identifier: Apache-2.0
#include "src/train/plan/plan_table.hpp"

#include "src/model/parameters.hpp"
#include "src/model/tensor_shard.hpp"
#include "src/support/text_layout.hpp"
#include "src/train/plan/planned_memory.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

double parameter_count(const ModelConfig& config) {
    double count = 0;
    for (const LogicalParameter& p : logical_parameters(config)) {
        count += static_cast<double>(p.rows * p.cols);
    }
    return count;
}

}  // namespace

std::string teams_across_hosts(const TrainingPlan& plan) {
    // The largest team, which includes the others, and the flags that make it so large.
    const Mesh& mesh = plan.mesh();
    const TrainOptions& options = plan.options();
    const int of_stage = mesh.size_of(Axis::context_tensor);
    const bool experts = mesh.expert > of_stage;
    const int team = experts ? mesh.expert : of_stage;
    const std::string shared = experts            ? "the experts of a stage"
                               : mesh.context > 1 ? "sequences"
                                                  : "a stage";
    const std::array<std::pair<const char*, int>, 2> of_experts{
        {{"--expert-model-parallel-size ", options.expert_model_parallel_size},
         {"--expert-tensor-parallel-size ", options.expert_tensor_parallel_size}}};
    const std::array<std::pair<const char*, int>, 2> of_others{
        {{"--tensor-model-parallel-size ", mesh.tensor},
         {"--context-parallel-size ", mesh.context}}};
    std::string flags;
    for (const auto& [flag, size] : experts ? of_experts : of_others) {
        if (size > 1) flags += (flags.empty() ? "" : ", ") + (flag + std::to_string(size));
    }
    int found = 0;
    std::string first;
    for (int begin = 0; begin < plan.ranks(); begin += team) {  // teams are neighbors
        std::vector<std::string> hosts;
        for (int rank = begin; rank < begin + team; ++rank) {
            const std::string& host = plan.placement(rank).host;
            if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
        }
        if (hosts.size() < 2 || ++found > 1) continue;
        first = "ranks " + std::to_string(begin) + "-" + std::to_string(begin + team - 1) +
                " share " + shared + " across the hosts " + hosts[0] + " and " + hosts[1] +
                (hosts.size() > 2 ? ", and others" : "");
    }
    if (found == 0) return {};
    return "warning: " + flags + ": " + first +
           (found > 1 ? " (and " + counted(found - 1, "more such stage") + ")" : "") +
           "; every layer waits for the network: place neighboring ranks on one host";
}

std::string ranks_that_share_cores(const TrainingPlan& plan) {
    const RankPlacement* const shared = plan.shared_cores();
    if (shared == nullptr) return {};
    return "warning: " + counted(shared->ranks_sharing, "rank") + " x " +
           counted(plan.threads(), "thread") + " have " + counted(shared->cores, "core") + " of " +
           shared->host + ": they take turns; " +
           (plan.threads() > 1 ? "lower --threads-per-rank" : "start fewer ranks on a host");
}

void print_plan(const TrainingPlan& plan) {
    const TrainOptions& options = plan.options();
    const Mesh& mesh = plan.mesh();
    const Schedule& schedule = plan.schedule();
    const std::string recomputation =
        plan.recompute() == Recompute::none
            ? ""
            : ", " + std::string(to_string(plan.recompute())) + " recomputation";
    const std::string ranks_text =
        (mesh.data == 1 ? "" : std::to_string(mesh.data) + " replicas x ") +
        (mesh.context == 1 ? "" : std::to_string(mesh.context) + " context ranks x ") +
        (mesh.tensor == 1 ? "" : std::to_string(mesh.tensor) + " tensor ranks x ") +
        counted(mesh.pipeline, mesh.size_of(Axis::context_tensor) == 1 ? "rank" : "pipeline rank") +
        (mesh.expert == 1 ? "" : ", experts shared by " + std::to_string(mesh.expert)) +
        (options.expert_tensor_parallel_size == 1
             ? ""
             : " (each by " + std::to_string(options.expert_tensor_parallel_size) + ")");
    std::array<char, 64> parameters;
    std::snprintf(parameters.data(), parameters.size(), "%.2f M parameters",
                  parameter_count(options.model) / 1e6);
    const std::string head =
        options.schedule + ", vocab mode " + std::string(to_string(options.vocab_mode)) + ", " +
        ranks_text + " x " + counted(plan.threads(), "thread") + ", " +
        counted(plan.microbatches(), "microbatch", "microbatches") + " of " +
        std::to_string(options.micro_batch_size) + " x " + (plan.has_lengths() ? "up to " : "") +
        std::to_string(options.model.seq_length) + " tokens" + (mesh.data == 1 ? "" : " each") +
        ", " + (options.model.dtype == DType::bf16 ? "bf16" : "fp32") + ", " + parameters.data() +
        recomputation +
        (options.zero.stage == 1 ? "" : ", ZeRO " + std::to_string(options.zero.stage));
    std::printf("%s\n", wrap_text(head, 2).c_str());
    TextTable table;
    // The memory of a thread within its process cannot be measured, so it is not predicted.
    table.row({"rank", "stages", "layers", "embedding", "output",
               plan.one_process() ? "planned" : "predicted", "device", "host"},
              {false, true, false, false, false, false, true, true});
    table.row({"", "", "", "rows", "rows", "MiB", "", ""});
    for (int rank = 0; rank < plan.ranks(); ++rank) {
        const int in_pipeline = mesh.pipeline_rank(rank);
        const TeamPlace tensor{mesh.place(rank).tensor, mesh.tensor};
        const auto part = [&](int64_t rows) { return row_shard({0, rows}, 1, tensor).row_count(); };
        int layers = 0;
        std::string stages;
        for (size_t s = 0; s < plan.partition().layers_per_stage.size(); ++s) {
            if (schedule.rank_of_stage[s] != in_pipeline) continue;
            layers += plan.partition().layers_per_stage[s];
            stages += (stages.empty() ? "" : ",") + std::to_string(s);
        }
        std::array<char, 32> bytes;
        std::snprintf(bytes.data(), bytes.size(), "%.1f",
                      static_cast<double>(plan.one_process() ? planned_bytes(plan, rank)
                                                             : predicted_bytes(plan, rank)) /
                          (1 << 20));
        table.row({std::to_string(rank), stages, std::to_string(layers),
                   std::to_string(part(schedule.input.rows(in_pipeline))),
                   std::to_string(part(schedule.output.rows(in_pipeline))), bytes.data(),
                   plan.placement(rank).device, plan.placement(rank).host});
    }
    std::printf("%s", table.text().c_str());
    if (plan.one_process()) {
        std::printf("process of all ranks: predicted %.1f MiB\n",
                    static_cast<double>(predicted_bytes(plan, 0)) / (1 << 20));
    }
    if (options.async_save) {
        std::string text;
        for (int rank = 0; rank < plan.ranks(); ++rank) {
            text += (rank == 0 ? " rank " : ", rank ") + std::to_string(rank) + " " +
                    mib_text(snapshot_bytes(plan, rank));
        }
        text = "copies for --async-save, in host memory" +
               std::string(plan.placement(0).memory ? "" : " and in the plan") + ":" + text;
        std::printf("%s\n", wrap_text(text, 2).c_str());
    }
    if (const int pieces = plan.steps().front().lowering.pieces; pieces > 1) {
        std::printf("boundaries between stages travel by %d pieces%s\n", pieces,
                    options.tile_pieces == 0 ? ", which simulates the shortest step" : "");
    }
    if (options.blocking_exchanges) {
        std::printf("no product runs beside what ranks of a team exchange\n");
    } else if (plan.mesh().expert > 1) {
        const ExpertPieces& by = plan.steps().front().partition.expert_pieces;
        std::printf("tokens travel to their experts by %d pieces, and home by %d panels\n",
                    by.dispatch, by.combine);
    }
    for (const std::string& text : {teams_across_hosts(plan), ranks_that_share_cores(plan)}) {
        if (!text.empty()) std::printf("%s\n", wrap_text(text, 2).c_str());
    }
    for (const std::string& note : plan.notes()) {
        std::printf("%s\n", wrap_text(options.schedule + ": " + note, 2).c_str());
    }
    std::fflush(stdout);
}

}  // namespace vocabpipe
