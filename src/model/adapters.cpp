// SPDX-License-Identifier: Apache-2.0
#include "src/model/adapters.hpp"

#include "src/model/parameters.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <set>
#include <string_view>

namespace vocabpipe {

namespace {

constexpr std::string_view kWeight = ".weight";

/// The matrices of a parameter, by their names in files without ".weight".
std::vector<std::string> modules_of(const LogicalParameter& p) {
    std::vector<std::string> modules;
    const auto add = [&](const std::string& tensor) {
        if (!tensor.ends_with(kWeight)) return;
        std::string module = tensor.substr(0, tensor.size() - kWeight.size());
        if (modules.empty() || modules.back() != module) modules.push_back(std::move(module));
    };
    for (const FilePart& part : p.parts) add(part.name);
    if (p.parts.empty()) add(p.name);
    return modules;
}

/// The matrices of the model: linear layers that may have adapters, or the others.
std::vector<std::string> modules_of(ModelConfig config, bool linear) {
    config.lora = {};
    std::vector<std::string> modules;
    for (const LogicalParameter& p : logical_parameters(config)) {
        if (!p.weight_decay || p.linear != linear) continue;
        for (std::string& module : modules_of(p)) modules.push_back(std::move(module));
    }
    return modules;
}

std::string last_part(const std::string& module) {
    return module.substr(module.rfind('.') + 1);
}

}  // namespace

std::vector<std::string> adapted_modules(const ModelConfig& config) {
    std::vector<std::string> modules = modules_of(config, true);
    std::erase_if(modules, [&](const std::string& module) { return !config.lora.targets(module); });
    return modules;
}

void check_adapters(const ModelConfig& config) {
    const LoraConfig& lora = config.lora;
    if (lora.rank == 0) {
        if (lora.alpha == 0 && lora.target_modules.empty()) return;
        throw UsageError(std::string(lora.alpha != 0 ? "--lora-alpha" : "--lora-target-modules") +
                         ": there are no adapters; set --lora-rank, or remove the flag");
    }
    const std::vector<std::string> linear = modules_of(config, true);
    std::string known;
    std::set<std::string> named;
    for (const std::string& module : linear) {
        const std::string name = last_part(module);
        if (named.insert(name).second) known += (known.empty() ? "" : ", ") + name;
    }
    if (lora.target_modules.empty() && config.moe.experts > 0) {
        throw UsageError("--lora-target-modules all-linear: experts (" + config.family +
                         ") have no adapters; name layers of " + known);
    }
    const std::vector<std::string> others = modules_of(config, false);
    for (const std::string& target : lora.target_modules) {
        const LoraConfig alone{.rank = lora.rank, .target_modules = {target}};
        const auto targeted = [&](const std::string& module) { return alone.targets(module); };
        const auto other = std::ranges::find_if(others, targeted);
        if (other != others.end()) {
            throw UsageError("--lora-target-modules " + target + ": " + *other +
                             " can have no adapter; use layers of " + known);
        }
        if (std::ranges::any_of(linear, targeted)) continue;
        throw UsageError("--lora-target-modules " + target.substr(0, 80) +
                         ": no linear layer has this name; use some of " + known);
    }
}

std::string describe_adapters(const ModelConfig& config) {
    const LoraConfig& lora = config.lora;
    if (lora.rank == 0) return {};
    int64_t trained = 0, frozen = 0;
    for (const LogicalParameter& p : logical_parameters(config)) {
        (p.adapter ? trained : frozen) += p.rows * p.cols;
    }
    char line[200];
    std::snprintf(line, sizeof line,
                  "adapters of rank %lld and scale %g in %zu linear layers: %.2f M elements, which "
                  "are trained; %.2f M are frozen\n",
                  static_cast<long long>(lora.rank), static_cast<double>(lora.scale()),
                  adapted_modules(config).size(), static_cast<double>(trained) * 1e-6,
                  static_cast<double>(frozen) * 1e-6);
    return line;
}

}  // namespace vocabpipe
