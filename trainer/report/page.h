// `megalith report`: runs as one HTML page that needs no other file and no network. Its frame is page.html, page.css
// and page.js of this folder, which the build puts into the program.
#pragma once

#include <string>
#include <vector>

#include "trainer/report/history.h"

namespace megalith {

// The template's parts, by the build from the files of this folder.
extern const char* const page_html;
extern const char* const page_css;
extern const char* const page_js;

// Of one run, or of several compared.
std::string report_page(const std::vector<History>& runs);

}  // namespace megalith
