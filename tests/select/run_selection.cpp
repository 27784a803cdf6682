// SPDX-License-Identifier: Apache-2.0
#include "tests/select/run_selection.hpp"

#include "src/select/write_subset.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>

namespace vocabpipe::testing {

SelectionResult run_selection(const std::string& folder, const SelectProblem& problem,
                              const SelectionOptions& options, const std::string& output,
                              const RunOptions& run) {
    SelectionResult result;
    World::threads(run.ranks).run([&](Communicator& world) {
        const GraphFile graph(folder + "graph");
        SelectContext context{.world = world,
                              .graph = graph,
                              .objective = problem.objective,
                              .seed = run.seed,
                              .memory = MemoryBudget(run.memory),
                              .batch_bytes = 4096,
                              .blocks = {.samples = run.block,
                                         .folder = folder,
                                         .chunk_bytes = 100}};  // so that many are written
        const GraphSizes sizes = GraphSizes::of(context);
        const MemoryPlan plan = plan_memory(sizes, run.ranks, options.rounds.parts,
                                            options.bounding, context.batch_bytes, context.blocks);
        std::optional<SelectionFolder> saved;
        if (!run.state.empty()) {
            saved.emplace(world, run.state,
                          std::map<std::string, std::string>{{"--seed", std::to_string(run.seed)}});
        }
        const auto utilities = [&](int64_t first, std::span<int32_t> to) {
            std::copy_n(problem.utility.begin() + first, to.size(), to.begin());
        };
        Selection selection(context, sizes, plan, utilities, options, saved ? &*saved : nullptr);
        int phases = 0;
        selection.run([&](const char*) {
            if (phases++ == run.end_after) throw Ended();
        });
        EXPECT_LE(context.memory.peak(), plan.total());
        write_subset(context, selection.state(), output,
                     {.corpus = corpus_of(problem), .count = options.k, .provenance = {}});
        if (saved) saved->remove();
        if (world.rank() != 0) return;
        EXPECT_EQ(selection.objective(), problem.value(SubsetReader(output).all()));
        result.resumed = selection.resumed();
        result.objective = selection.objective();
        result.progress = selection.progress();
        if (selection.certificate()) result.bound = selection.certificate()->bound;
    });
    return result;
}

}  // namespace vocabpipe::testing
