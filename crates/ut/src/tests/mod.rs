mod conformance;
mod floods;
mod over_bundles;
mod over_ltp;
mod over_service;
mod world;
