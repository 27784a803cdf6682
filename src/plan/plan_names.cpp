// SPDX-License-Identifier: Apache-2.0
// Names and texts of what plans are made of, as flags and reports have them.
#include "src/plan/device_links.hpp"
#include "src/support/names_of.hpp"
#include "vocabpipe/plan.hpp"

#include <array>
#include <string>
#include <string_view>
#include <utility>

namespace vocabpipe {

std::string_view to_string(Evaluation evaluation) {
    constexpr std::string_view kNames[] = {"auto", "search", "simulation", "pass_times"};
    return kNames[static_cast<size_t>(evaluation)];
}

Evaluation evaluation_from(std::string_view name) {
    return value_named("--evaluation", name,
                       {Evaluation::automatic, Evaluation::search, Evaluation::simulation,
                        Evaluation::pass_times});
}

std::string_view to_string(LayerSplit split) {
    constexpr std::string_view kNames[] = {"front", "back", "redistributed", "given"};
    return kNames[static_cast<size_t>(split)];
}

std::string schedule_text(const Candidate& candidate) {
    std::string text = candidate.schedule;
    if (candidate.memory_limit != 0) text += " k=" + std::to_string(candidate.memory_limit);
    if (candidate.overlap_pairs) text += " pairs";
    return text;
}

std::string mesh_text(const Candidate& candidate) {
    const Mesh& mesh = candidate.mesh;
    std::string text = "p=" + std::to_string(mesh.pipeline);
    for (const auto& [name, ranks] : {std::pair{" t=", mesh.tensor},
                                      {" C=", mesh.context},
                                      {" d=", mesh.data},
                                      {" e=", candidate.expert_groups()},
                                      {" x=", candidate.expert_tensor}}) {
        if (ranks > 1) text += name + std::to_string(ranks);
    }
    return text;
}

std::string to_string(const Candidate& candidate) {
    std::string text;
    if (!candidate.schedule.empty()) {
        text = schedule_text(candidate) + " " + std::string(to_string(candidate.vocab_mode));
        // The redistributed split has the same name as its vocabulary mode.
        if (candidate.split != LayerSplit::redistributed) {
            text += " " + std::string(to_string(candidate.split));
        }
        text += " v=" + std::to_string(candidate.chunks);
    }
    const auto add = [&](const std::string& more) { text += (text.empty() ? "" : " ") + more; };
    if (candidate.schedule.empty() || candidate.mesh.slices() > 1) add(mesh_text(candidate));
    if (candidate.micro_batch_size > 1) add("b=" + std::to_string(candidate.micro_batch_size));
    if (candidate.recompute != Recompute::none) add(std::string(to_string(candidate.recompute)));
    if (candidate.zero.stage > 1) {
        add("reshard=" + std::string(to_string(candidate.zero.reshard_after)));
    }
    return text;
}

bool spans_nodes(const DeviceSpec& device, const Mesh& mesh, Axis axis) {
    return DeviceLinks(device).spans_nodes(mesh, axis);
}

const std::array<MemoryPurpose, 7>& memory_purposes() {
    using M = PlannedMemory;
    static constexpr std::array<MemoryPurpose, 7> kPurposes{{
        {"weights", &M::weights},
        {"gradients", &M::gradients},
        {"optimizer", &M::optimizer},
        {"activations", &M::activations},
        {"vocabulary", &M::vocabulary},
        {"communication", &M::communication},
        {"reserve", &M::reserve},
    }};
    return kPurposes;
}

}  // namespace vocabpipe
