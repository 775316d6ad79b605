//! Modules, their functional forms, initialisation and losses.
