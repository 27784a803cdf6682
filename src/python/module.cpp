// SPDX-License-Identifier: Apache-2.0
// The compiled half of the package; vocabpipe/__init__.py is the public one.
#include "src/python/bindings.hpp"

NB_MODULE(_core, module) {
    module.doc() = "Compiled half of the package vocabpipe";
    module.attr("__version__") = VOCABPIPE_VERSION;
    vocabpipe::python::bind_errors(module);
    vocabpipe::python::bind_schedules(module);
    vocabpipe::python::bind_timelines(module);
    vocabpipe::python::bind_plans(module);
}
