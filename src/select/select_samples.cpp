// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/select_samples.hpp"

#include "src/select/files/fixed_point.hpp"
#include "src/select/sample_graph.hpp"
#include "src/select/selection_run.hpp"
#include "src/support/output_check.hpp"
#include "src/support/output_file.hpp"

namespace vocabpipe {

SampleSubset select_samples(Communicator& world, const SampleGraph& graph,
                            const SampleUtilities& utilities, const SelectSamplesOptions& options) {
    SelectionRun run(world, graph, utilities, options);
    world.agree([&] {
        run.check_memory();
        if (world.rank() != 0 || options.output.empty()) return;
        OutputCheck check({graph.implementation().path, utilities.implementation().path()});
        check.add("--output", options.output, subset_output());
        const OutputFile probe(options.output);
    });
    run.begin();
    run.run();
    const auto value_of = [](int64_t f) { return static_cast<double>(f) / kFixedPointOne; };
    SampleSubset subset{.size = run.size(), .objective = value_of(run.selection().objective())};
    if (const auto& certificate = run.selection().certificate()) {
        subset.certificate = SubsetCertificate{.lowering = certificate->lowering};
        if (certificate->bound) subset.certificate->bound = value_of(*certificate->bound);
    }
    if (options.output.empty()) {
        run.context().agree([&] { subset.own = run.chosen(); });
    } else {
        run.write();
    }
    run.end();
    return subset;
}

}  // namespace vocabpipe
