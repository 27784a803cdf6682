// SPDX-License-Identifier: Apache-2.0
#include "src/plan/embedded.hpp"
#include "src/plan/named_file.hpp"
#include "src/support/named_text.hpp"
#include "vocabpipe/device_spec.hpp"

#include <cmath>

namespace vocabpipe {

namespace {

constexpr std::string_view kBases[] = {"published", "measured", "assumed"};

Figure read(const NamedFile& file, const DeviceFigure& wanted) {
    const std::string key(wanted.key);
    const nlohmann::json& entry = file.object(key.c_str());
    const auto value = entry.find("value");
    if (value == entry.end() || !value->is_number()) {
        file.refuse(key, "needs a \"value\" that is a number");
    }
    Figure figure;
    figure.value = value->get<double>();
    const bool positive = figure.value > 0 || (wanted.may_be_zero && figure.value == 0);
    const double most = wanted.is_share ? 1.0 : 1e9;
    if (!std::isfinite(figure.value) || !positive || figure.value > most) {
        file.refuse(key, value->dump().substr(0, 40) + " must be " +
                             (wanted.may_be_zero ? "0 or more" : "more than 0") + " and at most " +
                             (wanted.is_share ? "1 (a share of the peak)" : "1e9"));
    }
    if (wanted.key == "gpus_per_node" && figure.value != std::floor(figure.value)) {
        file.refuse(key, value->dump() + " must be an integer");
    }
    const auto basis = entry.find("basis");
    for (size_t i = 0; i < std::size(kBases); ++i) {
        if (basis != entry.end() && *basis == kBases[i]) {
            figure.basis = static_cast<Basis>(i);
            const auto source = entry.find("source");
            if (source == entry.end() || !source->is_string() ||
                source->get_ref<const std::string&>().empty()) {
                file.refuse(key,
                            "needs a \"source\" that says where the number comes from or why it is "
                            "assumed");
            }
            figure.source = source->get<std::string>();
            return figure;
        }
    }
    file.refuse(key, "needs a \"basis\" of published, measured or assumed");
}

}  // namespace

std::string_view to_string(Basis basis) {
    return kBases[static_cast<size_t>(basis)];
}

const std::array<DeviceFigure, 24>& device_figures() {
    using D = DeviceSpec;
    static constexpr std::array<DeviceFigure, 24> kFigures{{
        {"gpus_per_node", &D::gpus_per_node, false, false},
        {"peak_tflops", &D::peak_tflops, false, false},
        {"memory_gib", &D::memory_gib, false, false},
        {"memory_gb_per_s", &D::memory_gb_per_s, false, false},
        {"link_gb_per_s", &D::link_gb_per_s, false, false},
        {"network_gb_per_s", &D::network_gb_per_s, false, false},
        {"link_latency_us", &D::link_latency_us, true, false},
        {"network_latency_us", &D::network_latency_us, true, false},
        {"dense_efficiency", &D::dense_efficiency, false, true},
        {"product_startup_terms", &D::product_startup_terms, true, false},
        {"product_overhead_us", &D::product_overhead_us, true, false},
        {"layer_launch_us", &D::layer_launch_us, true, false},
        {"fp8_speedup", &D::fp8_speedup, false, false},
        {"attention_efficiency", &D::attention_efficiency, false, true},
        {"flash_attention_2_efficiency", &D::flash_attention_2_efficiency, false, true},
        {"elementwise_efficiency", &D::elementwise_efficiency, false, true},
        {"link_efficiency", &D::link_efficiency, false, true},
        {"message_efficiency", &D::message_efficiency, false, true},
        {"network_efficiency", &D::network_efficiency, false, true},
        {"softmax_bytes_per_logit", &D::softmax_bytes_per_logit, true, false},
        {"whole_softmax_bytes_per_logit", &D::whole_softmax_bytes_per_logit, true, false},
        {"vocabulary_pass_overhead_us", &D::vocabulary_pass_overhead_us, true, false},
        {"overlap_efficiency", &D::overlap_efficiency, false, true},
        {"reserve_gib", &D::reserve_gib, true, false},
    }};
    return kFigures;
}

std::string known_devices() {
    return names_of(embedded::hardware());
}

DeviceSpec load_device(const std::string& name_or_path) {
    const NamedFile file("--gpu", name_or_path, embedded::hardware());
    DeviceSpec device;
    device.name = file.text("name");
    for (const DeviceFigure& figure : device_figures()) {
        device.*figure.figure = read(file, figure);
    }
    return device;
}

}  // namespace vocabpipe
