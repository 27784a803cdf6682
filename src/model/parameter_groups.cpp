// SPDX-License-Identifier: Apache-2.0
#include "src/model/parameter_groups.hpp"

#include "src/support/parse_number.hpp"
#include "src/support/split_text.hpp"
#include "vocabpipe/error.hpp"

#include <fnmatch.h>
#include <algorithm>
#include <cstdio>
#include <iterator>

namespace vocabpipe {

namespace {

bool matches(const ParameterGroup& group, std::string_view name) {
    return ::fnmatch(group.pattern.c_str(), std::string(name).c_str(), 0) == 0;
}

/// Index of the first group that has the tensor; groups.size(): none.
size_t group_of(const std::vector<ParameterGroup>& groups, std::string_view name) {
    size_t i = 0;
    while (i < groups.size() && !matches(groups[i], name)) ++i;
    return i;
}

bool has_adapters(const std::vector<LogicalParameter>& tensors) {
    return std::ranges::any_of(tensors, &LogicalParameter::adapter);
}

/// The tensors that groups can name: adapters where there are any, since all else is frozen. A
/// correction bias has no settings.
std::vector<LogicalParameter> grouped(const std::vector<LogicalParameter>& tensors) {
    const bool adapters = has_adapters(tensors);
    std::vector<LogicalParameter> of_groups;
    std::ranges::copy_if(tensors, std::back_inserter(of_groups), [&](const LogicalParameter& p) {
        return !p.correction_bias && (p.adapter || !adapters);
    });
    return of_groups;
}

[[noreturn]] void refuse(const std::string& text, const std::string& why) {
    throw UsageError("--param-group " + text + ": " + why +
                     "; use 'PATTERN:weight_decay=0,lr_mult=0.1' with one or both settings, or "
                     "'PATTERN:freeze'");
}

float setting(const std::string& text, const std::string& value) {
    const std::optional<float> number = parse_number<float>(value);
    if (!number || *number < 0) {
        refuse(text, "'" + value + "' is not a finite number of at least 0");
    }
    return *number;
}

}  // namespace

ParameterGroup parse_parameter_group(const std::string& text) {
    ParameterGroup group;
    group.text = text;
    const size_t colon = text.rfind(':');
    if (colon == std::string::npos || colon == 0) refuse(text, "has no PATTERN:");
    group.pattern = text.substr(0, colon);
    group.freeze = text.substr(colon + 1) == "freeze";
    if (group.freeze) return group;
    std::optional<float> multiplier;
    for (const std::string_view word : split_text(std::string_view(text).substr(colon + 1))) {
        const std::string part(word);
        const size_t equals = std::min(part.find('='), part.size());
        const std::string key = part.substr(0, equals);
        std::optional<float>* const target = key == "weight_decay" ? &group.weight_decay
                                             : key == "lr_mult"    ? &multiplier
                                                                   : nullptr;
        if (target == nullptr || equals == part.size()) {
            refuse(text, part == "freeze"
                             ? "freeze stands alone: frozen tensors have no other settings"
                             : "'" + part + "' is neither weight_decay=X nor lr_mult=Y");
        }
        if (*target) refuse(text, "sets " + key + " twice");
        *target = setting(text, part.substr(equals + 1));
    }
    group.lr_multiplier = multiplier.value_or(1);
    return group;
}

ParameterSettings parameter_settings(const std::vector<ParameterGroup>& groups,
                                     std::string_view name, bool decays, float weight_decay) {
    ParameterSettings settings{.weight_decay = decays ? weight_decay : 0};
    const size_t of = group_of(groups, name);
    if (of == groups.size()) return settings;
    settings.weight_decay = groups[of].weight_decay.value_or(settings.weight_decay);
    settings.lr_multiplier = groups[of].lr_multiplier;
    return settings;
}

std::vector<bool> frozen_parameters(const std::vector<ParameterGroup>& groups,
                                    const std::vector<LogicalParameter>& tensors) {
    const bool adapters = has_adapters(tensors);
    if (!adapters && std::ranges::none_of(groups, &ParameterGroup::freeze)) return {};
    std::vector<bool> frozen;
    for (const LogicalParameter& p : tensors) {
        const size_t of = group_of(groups, p.name);
        const bool by_group = of < groups.size() && groups[of].freeze;
        frozen.push_back(!p.correction_bias && (by_group || (adapters && !p.adapter)));
    }
    return frozen;
}

void check_parameter_groups(const std::vector<ParameterGroup>& groups,
                            const std::vector<LogicalParameter>& tensors) {
    const std::vector<LogicalParameter> of_groups = grouped(tensors);
    std::vector<int> members(groups.size() + 1);
    for (const LogicalParameter& p : of_groups) ++members[group_of(groups, p.name)];
    for (size_t i = 0; i < groups.size(); ++i) {
        if (members[i] > 0) continue;
        const auto example = std::ranges::find_if(
            of_groups, [&](const LogicalParameter& p) { return matches(groups[i], p.name); });
        if (example != of_groups.end()) {
            throw UsageError("--param-group " + groups[i].text +
                             ": matches only tensors of earlier groups, such as " + example->name +
                             "; the first match counts, so put this group earlier");
        }
        throw UsageError(
            "--param-group " + groups[i].text + ": matches no " +
            (has_adapters(tensors) ? "adapter, and all else is frozen" : "tensor of the model") +
            "; names look like " + of_groups.front().name + " and " + of_groups.back().name);
    }
}

std::string describe_parameter_groups(const std::vector<ParameterGroup>& groups,
                                      const std::vector<LogicalParameter>& tensors,
                                      float weight_decay) {
    if (groups.empty()) return {};
    struct Members {
        int64_t tensors = 0, elements = 0;
        float least = 0, most = 0;  ///< weight decay
    };
    std::vector<Members> members(groups.size() + 1);
    for (const LogicalParameter& p : grouped(tensors)) {
        Members& m = members[group_of(groups, p.name)];
        const float decay =
            parameter_settings(groups, p.name, p.weight_decay, weight_decay).weight_decay;
        m.least = m.tensors == 0 ? decay : std::min(m.least, decay);
        m.most = m.tensors == 0 ? decay : std::max(m.most, decay);
        ++m.tensors;
        m.elements += p.rows * p.cols;
    }
    std::string lines;
    for (size_t i = 0; i < members.size(); ++i) {
        const Members& m = members[i];
        if (m.tensors == 0) continue;
        if (i < groups.size() && groups[i].freeze) {
            char frozen[160];
            std::snprintf(frozen, sizeof frozen, "%lld tensors, %.2f M elements, frozen\n",
                          static_cast<long long>(m.tensors),
                          static_cast<double>(m.elements) * 1e-6);
            lines += "parameter group '" + groups[i].pattern + "': " + frozen;
            continue;
        }
        char decay[64];
        if (m.least == m.most) {
            std::snprintf(decay, sizeof decay, "%g", static_cast<double>(m.most));
        } else {
            std::snprintf(decay, sizeof decay, "%g (vectors %g)", static_cast<double>(m.most),
                          static_cast<double>(m.least));
        }
        char rest[160];
        std::snprintf(rest, sizeof rest,
                      ": %lld tensors, %.2f M elements, weight decay %s, learning rate x %g\n",
                      static_cast<long long>(m.tensors), static_cast<double>(m.elements) * 1e-6,
                      decay,
                      static_cast<double>(i < groups.size() ? groups[i].lr_multiplier : 1.0F));
        lines += "parameter group " +
                 (i < groups.size() ? "'" + groups[i].pattern + "'"
                                    : std::string("of all other tensors")) +
                 rest;
    }
    return lines;
}

}  // namespace vocabpipe
