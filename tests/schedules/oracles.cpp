// SPDX-License-Identifier: Apache-2.0
#include "tests/schedules/oracles.hpp"

#include "tests/schedules/notation.hpp"

#include <algorithm>
#include <fstream>
#include <stdexcept>

namespace vocabpipe::testing {

namespace {

/// JaxPP's "(0F7;7I3;7W3)": an I and its W that run as one are a B.
std::vector<Pass> list_from(std::string_view text) {
    std::vector<Pass> list;
    for (const Pass& pass : passes_from(text)) {
        const Pass i{Op::I, pass.stage, pass.microbatch, true};
        if (pass.op == Op::W && !list.empty() && list.back() == i) {
            list.back() = {Op::B, pass.stage, pass.microbatch, pass.with_next};
        } else {
            list.push_back(pass);
        }
    }
    return list;
}

/// Stages of a case without a placement are where they occur first.
std::vector<int> placement_of(const nlohmann::json& oracle,
                              const std::vector<std::vector<Pass>>& lists) {
    const auto given = oracle.find("placement_stage_to_rank");
    if (given != oracle.end()) return given->get<std::vector<int>>();
    std::vector<int> rank_of_stage(oracle.at("p").get<size_t>(), -1);
    for (size_t rank = 0; rank < lists.size(); ++rank) {
        for (const Pass& pass : lists[rank]) {
            if (pass.stage >= rank_of_stage.size()) rank_of_stage.resize(pass.stage + 1U, -1);
            int& owner = rank_of_stage[pass.stage];
            if (owner < 0) owner = static_cast<int>(rank);
        }
    }
    return rank_of_stage;
}

}  // namespace

const nlohmann::json& oracles() {
    static const nlohmann::json file = [] {
        std::ifstream in(VOCABPIPE_TEST_DATA "/schedule_oracles.json");
        return nlohmann::json::parse(in);
    }();
    return file;
}

Schedule schedule_of(const nlohmann::json& oracle) {
    Schedule schedule;
    schedule.ranks = oracle.at("p").get<int>();
    schedule.microbatches = oracle.at("m").get<int>();
    schedule.input = schedule.output = ShardMap::even(0, schedule.ranks);
    for (const auto& list : oracle.at("ranks")) {
        schedule.passes.push_back(list_from(list.get<std::string>()));
    }
    schedule.rank_of_stage = placement_of(oracle, schedule.passes);
    schedule.stages = static_cast<int>(schedule.rank_of_stage.size());
    return schedule;
}

std::vector<std::string> lists_of(const Schedule& schedule) {
    std::vector<std::string> lists;
    for (const std::vector<Pass>& passes : schedule.passes) lists.push_back(text_of(passes));
    return lists;
}

Schedule without_vocabulary(Schedule schedule) {
    for (std::vector<Pass>& list : schedule.passes) {
        std::erase_if(list, [](const Pass& pass) { return traits(pass.op).vocabulary; });
    }
    schedule.input = schedule.output = ShardMap::even(0, schedule.ranks);
    schedule.barriers = Barriers::in_line;
    return schedule;
}

PassCosts costs_of(const nlohmann::json& cost, int64_t latency) {
    PassCosts costs = PassCosts::uniform(1, 1, 1);
    auto& stage = costs.stage.at(0);
    stage[static_cast<size_t>(Op::F)] = cost.at("F").get<int64_t>();
    stage[static_cast<size_t>(Op::I)] = cost.at("I").get<int64_t>();
    stage[static_cast<size_t>(Op::W)] = cost.at("W").get<int64_t>();
    stage[static_cast<size_t>(Op::B)] = cost.at("I").get<int64_t>() + cost.at("W").get<int64_t>();
    costs.hop = latency;
    return costs;
}

}  // namespace vocabpipe::testing
