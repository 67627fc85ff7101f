//! Requests of a user to other entities.

use bytes::Bytes;
use engine::{FileName, Time};

use super::message;
use crate::Entity;
use crate::pdu::{
    ConditionCode, FaultHandler, Lv, ProxyPut, PutDetail, SfoRequest, TraceControl, TransactionId,
    TransmissionMode, UserOperation, UserRequest,
};
use crate::request::{FilestoreRequest, PutRequest, RequestError};

/// Put to be made by another entity, with its own file (CCSDS 727.0-B-5 §6.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyPutRequest {
    /// Entity that receives the file; this one, to fetch a file.
    pub destination: u64,
    /// File at the proxy; if empty, only messages and filestore requests are sent.
    pub source_name: String,
    /// Name of the file at the destination.
    pub destination_name: String,
    /// Messages to the destination's user.
    pub messages: Vec<Bytes>,
    /// Filestore requests for the destination.
    pub filestore_requests: Vec<FilestoreRequest>,
    /// Fault handlers of the proxy's put.
    pub fault_handlers: Vec<(ConditionCode, FaultHandler)>,
    /// Transmission mode of the proxy's put; `None` leaves it to the proxy.
    pub mode: Option<TransmissionMode>,
    /// Flow label of the proxy's put.
    pub flow_label: Option<Bytes>,
    /// Whether the proxy's put preserves record boundaries; `None` leaves it to the proxy.
    pub segmentation_control: Option<bool>,
    /// Whether the proxy's put requests closure; `None` leaves it to the proxy.
    pub closure: Option<bool>,
}

/// File, or messages alone, to be forwarded by waypoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SfoPutRequest {
    /// The final destination.
    pub destination: u64,
    /// Local file; `None` sends only messages and filestore requests.
    pub source: Option<FileName>,
    /// Name of the file at the final destination.
    pub destination_name: String,
    /// Label of this request, which reports carry.
    pub label: Bytes,
    /// Recipients of reports from the entities on the route.
    pub trace: TraceControl,
    /// Transmission mode of all hops.
    pub mode: TransmissionMode,
    /// Whether the hops request closure.
    pub closure: bool,
    /// Whether the hops preserve record boundaries.
    pub segmentation_control: bool,
    /// Messages to the final destination's user.
    pub messages: Vec<Bytes>,
    /// Filestore requests for the final destination.
    pub filestore_requests: Vec<FilestoreRequest>,
    /// Fault handlers of the hops.
    pub fault_handlers: Vec<(ConditionCode, FaultHandler)>,
    /// Flow label of the hops.
    pub flow_label: Option<Bytes>,
}

/// Messages under construction; records whether one did not fit.
#[derive(Default)]
struct Messages {
    list: Vec<Bytes>,
    too_long: Option<&'static str>,
}

impl Messages {
    fn add(&mut self, what: &'static str, operation: &UserOperation<'_>) {
        match message::encode(operation) {
            Some(message) => self.list.push(message),
            None => self.too_long = self.too_long.or(Some(what)),
        }
    }

    fn finish(self) -> Result<Vec<Bytes>, RequestError> {
        self.too_long.map_or(Ok(self.list), |what| Err(RequestError::TooLong(what)))
    }
}

impl ProxyPutRequest {
    fn messages(&self) -> Result<Vec<Bytes>, RequestError> {
        let mut out = Messages::default();
        let put = UserRequest::ProxyPut(ProxyPut {
            destination: message::entity(self.destination),
            source_name: self.source_name.as_str().into(),
            destination_name: self.destination_name.as_str().into(),
        });
        out.add("the names of a proxy put", &put.into());
        for text in &self.messages {
            let detail = PutDetail::MessageToUser(Lv(text));
            out.add("a message to the user", &UserOperation::Proxy(detail));
        }
        for request in &self.filestore_requests {
            let detail = PutDetail::FilestoreRequest(request.to_wire());
            out.add("a filestore request", &UserOperation::Proxy(detail));
        }
        for &(condition, handler) in &self.fault_handlers {
            let detail = PutDetail::FaultHandlerOverride { condition, handler };
            out.add("a fault handler", &UserOperation::Proxy(detail));
        }
        if let Some(mode) = self.mode {
            out.add("the mode", &UserOperation::ProxyTransmissionMode(mode));
        }
        if let Some(label) = &self.flow_label {
            let detail = PutDetail::FlowLabel(Lv(label));
            out.add("the flow label", &UserOperation::Proxy(detail));
        }
        if let Some(control) = self.segmentation_control {
            let operation = UserOperation::ProxySegmentationControl(control);
            out.add("segmentation control", &operation);
        }
        if let Some(closure) = self.closure {
            out.add("closure", &UserOperation::ProxyClosureRequest(closure));
        }
        out.finish()
    }
}

impl SfoPutRequest {
    fn messages(&self, source: u64) -> Result<Vec<Bytes>, RequestError> {
        let mut out = Messages::default();
        let request = SfoRequest {
            trace: self.trace,
            mode: self.mode,
            segmentation_control: self.segmentation_control,
            closure_requested: self.closure,
            prior_waypoints: 0,
            label: Lv(&self.label),
            source: message::entity(source),
            destination: message::entity(self.destination),
            source_name: self.source.as_ref().map_or("", FileName::path).into(),
            destination_name: self.destination_name.as_str().into(),
        };
        out.add("the names of a store-and-forward put", &UserRequest::Sfo(request).into());
        for text in &self.messages {
            let detail = PutDetail::MessageToUser(Lv(text));
            out.add("a message to the user", &UserOperation::Sfo(detail));
        }
        if let Some(label) = &self.flow_label {
            let detail = PutDetail::FlowLabel(Lv(label));
            out.add("the flow label", &UserOperation::Sfo(detail));
        }
        for &(condition, handler) in &self.fault_handlers {
            let detail = PutDetail::FaultHandlerOverride { condition, handler };
            out.add("a fault handler", &UserOperation::Sfo(detail));
        }
        for request in &self.filestore_requests {
            let detail = PutDetail::FilestoreRequest(request.to_wire());
            out.add("a filestore request", &UserOperation::Sfo(detail));
        }
        out.finish()
    }
}

impl Entity {
    /// Requests another entity to send one of its files (CCSDS 727.0-B-5 §6.2). Ends with an
    /// [`OperationIndication::ProxyPutResponse`](crate::OperationIndication) that carries the
    /// identifier returned here.
    ///
    /// # Errors
    /// The request is refused; nothing was started.
    pub fn proxy_put(
        &mut self,
        now: Time,
        proxy: u64,
        request: &ProxyPutRequest,
    ) -> Result<TransactionId, RequestError> {
        if request.destination == proxy {
            return Err(RequestError::Conflict("a proxy does not send to itself"));
        }
        let messages = request.messages()?;
        self.put_messages(now, proxy, messages)
    }

    /// Cancels a put that another entity makes for this one (§6.2.12); `id` was returned by
    /// [`Entity::proxy_put`].
    ///
    /// # Errors
    /// The request is refused.
    pub fn proxy_cancel(
        &mut self,
        now: Time,
        proxy: u64,
        id: TransactionId,
    ) -> Result<TransactionId, RequestError> {
        let mut out = Messages::default();
        out.add("a transaction", &UserOperation::OriginatingTransactionId(message::field(id)));
        out.add("a cancellation", &UserRequest::ProxyPutCancel.into());
        let messages = out.finish()?;
        self.put_messages(now, proxy, messages)
    }

    /// Requests a directory listing of another entity (§6.3): one name per line, relative to its
    /// root, directories with a trailing slash. The listing arrives as `local_file`, followed by an
    /// [`OperationIndication::DirectoryListing`](crate::OperationIndication). An empty name is the
    /// root.
    ///
    /// # Errors
    /// The request is refused.
    pub fn list_directory(
        &mut self,
        now: Time,
        remote: u64,
        directory: &str,
        local_file: &str,
    ) -> Result<TransactionId, RequestError> {
        Self::check_name(local_file)?;
        let request =
            UserRequest::DirectoryListing { directory: directory.into(), file: local_file.into() };
        self.put_request(now, remote, "the names of a listing", request)
    }

    /// Requests the state of a transaction at another entity (§6.4). The report arrives as
    /// `local_file`, if there is such a transaction, followed by an
    /// [`OperationIndication::RemoteStatusReport`](crate::OperationIndication).
    ///
    /// # Errors
    /// The request is refused.
    pub fn remote_status_report(
        &mut self,
        now: Time,
        remote: u64,
        transaction: TransactionId,
        local_file: &str,
    ) -> Result<TransactionId, RequestError> {
        Self::check_name(local_file)?;
        let request = UserRequest::RemoteStatusReport {
            transaction: message::field(transaction),
            file: local_file.into(),
        };
        self.put_request(now, remote, "the name of a report", request)
    }

    /// Requests another entity to suspend a transaction (§6.5). Ends with an
    /// [`OperationIndication::RemoteSuspend`](crate::OperationIndication).
    ///
    /// # Errors
    /// The request is refused.
    pub fn remote_suspend(
        &mut self,
        now: Time,
        remote: u64,
        transaction: TransactionId,
    ) -> Result<TransactionId, RequestError> {
        let request = UserRequest::RemoteSuspend(message::field(transaction));
        self.put_request(now, remote, "a transaction", request)
    }

    /// Requests another entity to resume a transaction (§6.6). Ends with an
    /// [`OperationIndication::RemoteResume`](crate::OperationIndication).
    ///
    /// # Errors
    /// The request is refused.
    pub fn remote_resume(
        &mut self,
        now: Time,
        remote: u64,
        transaction: TransactionId,
    ) -> Result<TransactionId, RequestError> {
        let request = UserRequest::RemoteResume(message::field(transaction));
        self.put_request(now, remote, "a transaction", request)
    }

    /// Sends a file through waypoints: to the next entity by
    /// [`UserOperations::routes`](crate::UserOperations::routes). Reports arrive as
    /// [`OperationIndication::SfoReport`](crate::OperationIndication).
    ///
    /// # Errors
    /// The request is refused; nothing was started.
    pub fn sfo_put(
        &mut self,
        now: Time,
        request: &SfoPutRequest,
    ) -> Result<TransactionId, RequestError> {
        if request.destination == self.core.config.entity {
            return Err(RequestError::Conflict("the destination is this entity"));
        }
        let messages = request.messages(self.core.config.entity)?;
        let hop = PutRequest {
            destination: self.core.config.user_operations.next_hop(request.destination),
            source: request.source.clone(),
            destination_name: request.destination_name.clone(),
            mode: Some(request.mode),
            closure: Some(request.closure),
            segmentation_control: request.segmentation_control,
            messages,
            fault_handlers: request.fault_handlers.clone(),
            flow_label: request.flow_label.clone(),
            ..PutRequest::default()
        };
        self.put(now, hop)
    }

    fn put_request(
        &mut self,
        now: Time,
        remote: u64,
        what: &'static str,
        request: UserRequest<'_>,
    ) -> Result<TransactionId, RequestError> {
        let message = message::encode(&request.into()).ok_or(RequestError::TooLong(what))?;
        self.put_messages(now, remote, vec![message])
    }

    fn put_messages(
        &mut self,
        now: Time,
        destination: u64,
        messages: Vec<Bytes>,
    ) -> Result<TransactionId, RequestError> {
        self.put(now, PutRequest { destination, messages, ..PutRequest::default() })
    }
}
